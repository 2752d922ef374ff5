"""The form of what users read: messages and fixes at every place that raises, and words that no text may have."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tailrace_operator
from support import error_names
from support.syntax import tree, walk
from tailrace.errors import Retry, TableStop, TailraceError

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = [ROOT / "spark_app" / "tailrace", ROOT / "operator" / "tailrace_operator"]

PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "dev").glob("*.md")),
]

UNKNOWN = "\0"
"""Stands in a text for what is only known when the program runs."""

PROPER = {
    "Delta", "Iceberg", "Java", "Kubernetes", "PostgreSQL", "Replicator", "Secret", "SnapshotRequest", "Spark",
    "Spark's", "Tailrace",
}  # fmt: skip
"""What a message may begin with in capitals: names of products, and of resources. (SQL is all in capitals.)"""


BANNED = {
    r"\banew\b": "again, re-create",
    r"\blies\b|\blie (?:in|on|at|under|below)\b": "is, are",
    r"\bgo(?:es)? on\b": "continue",
    r"\btaken in\b|\btakes? in\b": "captured",
    r"\bcannot be had\b": "can no longer be recovered",
    r"\bwho waits\b": "what it waits for",
    r"\ba person\b": "manual action, somebody's name for it",
    r"\bours?\b(?! of)": "this Replicator's, Tailrace's",
    r"\b(?:of its|of their|of your) own\b": "its own, separate",
    r"\bends? in order\b|\bended in order\b|\bstopped in order\b": "shut down cleanly",
    r"\bany ?more\b": "no longer, any longer",
    r"\bgiven up\b": "stopped",
    r"\bwhat (?:is|was|does) (?:logged|made|wrong|lost|read|written|captured|told)\b": "a noun",
    r"\bis over\b|\bare over\b": "has ended",
    r"\bby nobody\b|\bby somebody\b": "name the actor",
}


@dataclass
class Module:
    """One module's tree, and where its names come from."""

    path: Path
    tree: ast.Module
    owner: dict[ast.AST, ast.FunctionDef] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


@cache
def modules() -> list[Module]:
    found = []
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        module = Module(path, tree(path))
        for function in walk(module.tree):
            if isinstance(function, ast.FunctionDef):
                module.owner |= dict.fromkeys(walk(function), function)
        found.append(module)
    return found


@cache
def kinds() -> dict[str, type[TailraceError]]:
    for found in pkgutil.walk_packages(tailrace_operator.__path__, "tailrace_operator."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    return {kind.__name__: kind for kind in error_names.all_kinds()}


@dataclass
class Raised:
    """One place that makes an error: every text that its message and its fix can be."""

    where: str
    kind: type[TailraceError]
    messages: list[str]
    fixes: list[str]


@cache
def raised() -> list[Raised]:
    return list(places())


def places() -> Iterator[Raised]:
    for module in modules():
        within = {
            call: node.name
            for node in walk(module.tree)
            if isinstance(node, ast.ClassDef) and node.name in kinds()
            for call in walk(node)
        }
        for call in walk(module.tree):
            if not isinstance(call, ast.Call):
                continue
            inherited = name_of(call.func) == "__init__" and ast.unparse(call.func) == "super().__init__"
            kind = kinds().get(within.get(call, "") if inherited else name_of(call.func))
            if kind is None or not (inherited or {"fix", "table"} & inspect.signature(kind).parameters.keys()):
                continue  # the second: it puts its texts together itself
            given = call.args[1:] if issubclass(kind, TableStop) else call.args
            if not given or any(isinstance(argument, ast.Starred) for argument in given):
                continue  # a model of that name, or another error's texts passed on
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            message = given[0] if given else named.get("message")
            fix = given[1] if len(given) > 1 else named.get("fix")
            yield Raised(
                f"{module.where}:{call.lineno}",
                kind,
                [] if message is None else list(texts(message, module)),
                [] if fix is None else list(texts(fix, module)),
            )


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def texts(node: ast.expr, module: Module, depth: int = 0) -> Iterator[str]:
    """Every text that an expression can be, with UNKNOWN for its parts that the source does not tell."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            parts = [
                v.value if isinstance(v, ast.Constant) and isinstance(v.value, str) else part(v, module, depth)
                for v in values
            ]
            yield "".join(parts)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            for one in texts(left, module, depth):
                for two in texts(right, module, depth):
                    yield one + two
        case ast.IfExp(body=body, orelse=other):
            yield from texts(body, module, depth)
            yield from texts(other, module, depth)
        case ast.BoolOp(values=operands):
            for operand in operands:
                yield from texts(operand, module, depth)
        case ast.Name() | ast.Call() if depth < 3 and (made := list(origins(node, module))):
            for source, value in made:
                yield from texts(value, source, depth + 1)
        case _:
            yield UNKNOWN


def part(value: ast.expr, module: Module, depth: int) -> str:
    inner = value.value if isinstance(value, ast.FormattedValue) else value
    found = list(texts(inner, module, depth)) if isinstance(inner, ast.Name) and inner.id.isupper() else []
    return found[0] if len(found) == 1 else UNKNOWN


def origins(node: ast.expr, module: Module) -> Iterator[tuple[Module, ast.expr]]:
    """Where a name gets its value, or what a function of this module returns."""
    if isinstance(node, ast.Call):
        for called in walk(module.tree):
            if isinstance(called, ast.FunctionDef) and called.name == name_of(node.func):
                returned = (n.value for n in walk(called) if isinstance(n, ast.Return) and n.value is not None)
                yield from ((module, value) for value in returned)
        return
    name, function = name_of(node), module.owner.get(node)
    assigned = list(values(name, function)) if function is not None else []
    assigned = assigned or list(values(name, module.tree, deep=False))
    yield from ((module, value) for value in assigned)
    if not assigned:
        for source in imported(name, module):
            yield from ((source, value) for value in values(name, source.tree, deep=False))


def values(name: str, inside: ast.AST, deep: bool = True) -> Iterator[ast.expr]:
    for node in walk(inside) if deep else ast.iter_child_nodes(inside):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=elements)):
                pairs = zip(targets, elements, strict=True)
                yield from (value for target, value in pairs if name_of(target) == name)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                yield value


def imported(name: str, module: Module) -> Iterator[Module]:
    for node in walk(module.tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            ending = "/".join((node.module or "").split("."))
            wanted = (f"/{ending}.py", f"/{ending}/__init__.py")
            yield from (other for other in modules() if other.path.as_posix().endswith(wanted))


def fault_of_message(text: str) -> str | None:
    if text.endswith("."):
        return "ends with a full stop"
    first = re.split(r"[ ,:]", text, maxsplit=1)[0]
    if text[0].isupper() and first not in PROPER and not first.isupper():
        return "begins with a capital"
    return None


def fault_of_fix(text: str) -> str | None:
    if not text.endswith((".", UNKNOWN)):
        return "does not end with a full stop"
    if text[0].islower():
        return "does not begin with a capital"
    return None


def test_every_message_begins_in_lower_case_and_has_no_full_stop() -> None:
    wrong = [
        f"{one.where}: {fault}: {text!r}"
        for one in raised()
        for text in one.messages
        if text and (fault := fault_of_message(text))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_fix_is_a_sentence_with_a_capital_and_a_full_stop() -> None:
    wrong = [
        f"{one.where}: {fault}: {text!r}"
        for one in raised()
        for text in one.fixes
        if text and (fault := fault_of_fix(text))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


FINDINGS = {"Finding": (2, 3), "Line": (2, 3)}
"""What `doctor` prints: the classes, and where their message and their fix stand among the arguments."""


def findings() -> Iterator[tuple[str, str, str]]:
    """Place, kind (`message` or `fix`) and text of everything that `doctor` can say of its own."""
    for module in modules():
        for call in walk(module.tree):
            if not isinstance(call, ast.Call) or name_of(call.func) not in FINDINGS:
                continue
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            for kind, position in zip(("message", "fix"), FINDINGS[name_of(call.func)], strict=True):
                given = call.args[position] if len(call.args) > position else named.get(kind)
                if given is not None:
                    yield from ((f"{module.where}:{call.lineno}", kind, text) for text in texts(given, module))


def test_every_finding_of_doctor_has_the_form_of_an_error() -> None:
    found = list(findings())
    assert sum(not text.startswith(UNKNOWN) for _, _, text in found) > 60
    forms = {"message": fault_of_message, "fix": fault_of_fix}
    wrong = [f"{at}: {fault}: {text!r}" for at, kind, text in found if text and (fault := forms[kind](text))]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_error_that_is_not_tried_again_names_a_fix() -> None:
    shown = error_names.shown()
    wrong = [
        f"{one.where}: {one.kind.__name__}"
        for one in raised()
        if one.kind.__name__ in shown and not issubclass(one.kind, Retry) and not (one.fixes or one.kind.usual_fix)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_search_finds_the_places() -> None:
    found = raised()
    assert len(found) > 250
    known = [one for one in found if UNKNOWN not in "".join(one.messages)[:1]]
    assert len(known) > 150


def strings() -> Iterator[tuple[str, str]]:
    """Every text in the code that users may see: messages, events, log lines, help, and the models' descriptions."""
    for module in modules():
        described = "/contract/" in module.path.as_posix() or "/status/" in module.path.as_posix()
        documents = {
            statement.value
            for holder in walk(module.tree)
            if not (described and isinstance(holder, ast.ClassDef))
            for statement in ast.iter_child_nodes(holder)
            if isinstance(statement, ast.Expr)
        }
        for node in walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
                yield f"{module.where}:{node.lineno}", node.value


def test_no_text_has_a_word_that_no_engineer_would_write() -> None:
    pages = [
        (f"{page.relative_to(ROOT)}:{number}", line)
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
    ]
    wrong = [
        f"{where}: {found[0]!r} (write: {better})"
        for where, text in [*strings(), *pages]
        for pattern, better in BANNED.items()
        if (found := re.search(pattern, text, re.IGNORECASE))
    ]
    assert not wrong, "\n" + "\n".join(wrong)
