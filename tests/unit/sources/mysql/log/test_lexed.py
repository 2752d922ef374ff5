"""The words of a statement, by the quoting of its session."""

from random import Random

import pytest

from tailrace.sources.mysql.log.lexed import Lexed, Quoting, lexed

PLAIN, ANSI = Quoting(ansi=False, backslashes=True), Quoting(ansi=True, backslashes=True)
LITERAL = Quoting(ansi=False, backslashes=False)


def read(text: str, quoting: Quoting = PLAIN) -> Lexed:
    found = lexed(text, quoting)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "quoting", "shown"),
    [
        ("a 'it''s' b", PLAIN, "a '0' b"),
        (r"a 'x\'y' b", PLAIN, "a '0' b"),
        (r"a 'x\' b", LITERAL, "a '0' b"),
        ('a "x" b', PLAIN, "a '0' b"),
        ('a "x""`y" b', ANSI, 'a `x"``y` b'),
        (r'a "x\" b', ANSI, r"a `x\` b"),
        ("a `x``y` b", PLAIN, "a `x``y` b"),
        ("a -- 'b\nc", PLAIN, "a   c"),
        ("a--5", PLAIN, "a- -5"),
        ("a /* ' */ b # '", PLAIN, "a   b  "),
        ("a /*!80013 b 'c' */ d", PLAIN, "a /*!80013  b '0' */ d"),
        ("/*!80000 /* c */ b*/", PLAIN, "/*!80000    b*/"),
        ("/*!40000 a */ /*!b*/ /*!50699 c*/", PLAIN, "  a    b    c "),
        ("/*M! a */ /*!50700 b*/", PLAIN, "/*M!  a */ /*!50700  b*/"),
    ],
)
def test_comments_and_strings_are_taken_out_and_names_stay(text: str, quoting: Quoting, shown: str) -> None:
    assert read(text, quoting).text == shown


@pytest.mark.parametrize("text", ["a 'b", "a `b", "a /* b", "/*!50000 a", "/*!99999 it's */ b", "/*!50000 'a */ b' */"])
def test_what_has_no_certain_end_is_not_read(text: str) -> None:
    assert lexed(text, PLAIN) is None


def test_names_come_with_what_stands_before_their_dot() -> None:
    names = list(read("ALTER TABLE `a b` . c ADD d.e int, f.*").names())
    assert (None, "a b") in names and ("a b", "c") in names and ("d", "e") in names


def test_the_beginning_of_a_statement_has_no_values() -> None:
    text = "UPDATE  `w` SET v = 'secret',\n n=-12.5, x = 0xFF WHERE c IN (\"a\", 7) /* secret */"
    assert read(text).beginning() == "UPDATE `w` SET v = ?, n=-?.?, x = ? WHERE c IN (?, ?)"
    assert len(read("SELECT " + "abc, " * 100).beginning()) < 130


def test_keywords_in_quotes_and_comments_are_never_words() -> None:
    random = Random(7)
    keywords = ["SELECT", "INSERT", "d.t", "t", "FOR", "VALUES"]
    for quoting in (PLAIN, ANSI, LITERAL, Quoting(ansi=True, backslashes=False)):
        for _ in range(300):
            pieces = [hidden(random, random.choice(keywords), quoting) for _ in range(random.randint(1, 6))]
            found = read(" w ".join(pieces), quoting)
            assert set(found.words()) <= {"W"}, pieces
            again = lexed(found.text, PLAIN)
            assert again is not None and again.words() == found.words(), "the parser reads the same"


def hidden(random: Random, word: str, quoting: Quoting) -> str:
    """The word where it means nothing, with whatever may mislead a reader."""
    noise = random.choice(["", " ", "'", '"', "`", "--", "/*", "#", "\\\\" if quoting.backslashes else "\\", "\n"])
    inside = f"{noise}{word}{noise}"
    match random.randrange(5):
        case 0:
            return "'" + inside.replace("'", random.choice(["''", "\\'"] if quoting.backslashes else ["''"])) + "'"
        case 1:
            return "`" + inside.replace("`", "``") + "`"
        case 2:
            return '"' + inside.replace('"', '""') + '"'
        case 3:
            return "/*" + inside.replace("*/", "").replace("/*", "") + "*/"
        case _:
            return f"{random.choice(['# ', '-- '])}{inside}".replace("\n", " ") + "\n"
