"""A statement's text without what could be mistaken for its words: comments are blanks, strings are `'0'`, quoted names
stand in backticks, by the quoting that its session had.

Used by `statements` before any search and before the parser. Of the comments that servers execute, those for versions
that are older than every supported one are plain text; others stay, with their marks: whether a server of a given
version executes them is not known here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STRING = "'0'"
_BLANK = re.compile(r"\s+")
_LINE = re.compile(r"(?:#|--(?=[\s\x00-\x1f\x7f]|\Z))[^\n]*")
_EXECUTED = re.compile(r"/\*M?!\d*")
_ALWAYS = re.compile(r"/\*!(?:[34]\d{4}|50[0-6]\d\d)?(?!\d)")
"""MariaDB passes over those from 50700 to 99999."""
_WORD = re.compile(r"[\w$\u0080-\U0010ffff]+")
_SHOWN = 120
"""Characters of a statement in a message."""


@dataclass(frozen=True)
class Quoting:
    """The meaning of quotes by `sql_mode`."""

    ansi: bool
    """A name stands in double quotes, not a string."""
    backslashes: bool
    """A backslash in a string escapes what follows."""


class Token(NamedTuple):
    """A piece of the statement."""

    kind: str
    """`word`, `name` (quoted), `string`, `mark`, `blank`; `begin` and `end` of a comment that the server executes."""
    text: str
    """The piece as it is; of a name, its meaning."""
    executed: bool
    """It stands in a comment that the server executes."""


@dataclass(frozen=True)
class Lexed:
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        return "".join(map(_written, self.tokens))

    def words(self, executed: bool = True) -> list[str]:
        """The unquoted words, in upper case. `executed`: also those in comments that the server executes."""
        return [t.text.upper() for t in self.tokens if t.kind == "word" and (executed or not t.executed)]

    def names(self) -> Iterator[tuple[str | None, str]]:
        """Each word and quoted name with the one before its dot."""
        found = [t for t in self.tokens if t.kind not in ("blank", "begin", "end")]
        for at, token in enumerate(found):
            if token.kind in ("word", "name"):
                qualified = at > 1 and found[at - 1].text == "." and found[at - 2].kind in ("word", "name")
                yield found[at - 2].text if qualified else None, token.text

    def beginning(self) -> str:
        """Its first words, without values."""
        shown = "".join("?" if t.kind == "string" or _is_number(t) else _written(t) for t in self.tokens)
        line = _BLANK.sub(" ", shown).strip()
        return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _is_number(token: Token) -> bool:
    return token.kind == "word" and token.text[:1].isdigit()


def _written(token: Token) -> str:
    if token.kind == "name":
        return "`" + token.text.replace("`", "``") + "`"
    return STRING if token.kind == "string" else token.text


def lexed(text: str, quoting: Quoting) -> Lexed | None:
    """None: it has a quote or a comment without an end, or its quotes depend on which comments are executed."""
    try:
        return Lexed(tuple(_Lexer(text, quoting).run()))
    except ValueError:
        return None


class _Lexer:
    def __init__(self, text: str, quoting: Quoting) -> None:
        self._text, self._quoting = text, quoting
        self._always = False
        """The comment that is executed is, by every server."""
        self._executed_until = 0
        """The end of the comment that is executed, 0: outside of one."""

    def run(self) -> Iterator[Token]:
        at = 0
        while at < len(self._text):
            kind, shown, behind = self._next(at)
            if kind == "begin":
                self._executed_until = self._end_of_comment(at, nests=True)
                self._always = _ALWAYS.match(self._text, at) is not None
            if self._always and kind in ("begin", "end"):
                kind, shown = "blank", " "
            yield Token(kind, shown, not self._always and (bool(self._executed_until) or kind == "end"))
            at = behind
        if self._executed_until:
            raise ValueError("a comment without an end")

    def _next(self, at: int) -> tuple[str, str, int]:
        text = self._text
        if self._executed_until and at >= self._executed_until - 2:
            if at != self._executed_until - 2:
                raise ValueError("its end is in a quote, for a server that does not execute it")
            self._executed_until = 0
            return "end", "*/", at + 2
        char = text[at]
        if found := _BLANK.match(text, at) or _LINE.match(text, at):
            return "blank", " ", found.end()
        if text.startswith("/*", at):
            if found := _EXECUTED.match(text, at):
                if self._executed_until:
                    raise ValueError("one in another")
                return "begin", found[0] + " ", found.end()
            return "blank", " ", self._end_of_comment(at)
        if char == "`" or (char == '"' and self._quoting.ansi):
            return "name", *self._quoted(at, backslashes=False)
        if char in "'\"":
            return "string", *self._quoted(at, self._quoting.backslashes)
        if found := _WORD.match(text, at):
            return "word", found[0], found.end()
        # Two signs, which a parser that knows fewer rules than the server would take for a comment.
        return "mark", "- " if text.startswith("--", at) else char, at + 1

    def _quoted(self, at: int, backslashes: bool) -> tuple[str, int]:
        """Content and end of what begins with this quote."""
        quote, begins, pieces = self._text[at], at + 1, list[str]()
        at = begins
        while True:
            if at >= len(self._text):
                raise ValueError("a quote without an end")
            if self._text[at] == "\\" and backslashes:
                at += 2
            elif self._text[at] != quote:
                at += 1
            elif self._text[at : at + 2] == quote * 2:
                pieces.append(self._text[begins : at + 1])
                begins = at = at + 2
            else:
                return "".join((*pieces, self._text[begins:at])), at + 1

    def _end_of_comment(self, at: int, nests: bool = False) -> int:
        """The place behind its `*/`. `nests`: comments inside of it have ends of their own."""
        depth, at = 1, at + 2
        while depth:
            opens, closes = self._text.find("/*", at), self._text.find("*/", at)
            if closes < 0:
                raise ValueError("a comment without an end")
            inner = nests and 0 <= opens < closes
            depth, at = (depth + 1, opens + 2) if inner else (depth - 1, closes + 2)
        return at
