"""The rules of the code base that no linter knows, each tried on a sample that breaks it.

A rule is a function from a file to what is wrong with it. Import contracts are import-linter's
(`make check`); here is what can be read off one file at a time.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "shardlog" / "protocol"
DECISIONS = ROOT / "docs" / "decisions"

EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers"}
WORDS_NOT_USED = re.compile(r"_(terms?|views?|lsns?|peers?|servers?|brokers?|high_watermarks?)_")
IO_BUILTINS = {"breakpoint", "input", "open", "print"}
BROAD = {"Exception", "BaseException"}
LOGGERS = {"log", "logger", "logging"}
SECTIONS = ("Context", "Choice", "Measured", "Cost")

Rule = Callable[[Path, str], Iterator[str]]


def python_files(top: Path) -> Iterator[Path]:
    for path in sorted(top.rglob("*.py")):
        directories = path.relative_to(ROOT).parts[:-1]
        if not any(name.startswith(".") or name in ("build", "dist") for name in directories):
            yield path


def named_for_nothing(path: Path, source: str) -> Iterator[str]:
    name = path.parent.name if path.stem == "__init__" else path.stem
    if name in EMPTY_NAMES:
        yield f"the module name {name!r} says nothing about what is inside"


def swallows_errors(path: Path, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ExceptHandler(type=caught, body=body):
                if is_broad(caught) and all(does_nothing(step) for step in body):
                    yield f"line {node.lineno}: catches everything and does nothing about it"
            case ast.Call(func=called, args=arguments) if last_name(called) == "suppress":
                if any(is_broad(argument) for argument in arguments):
                    yield f"line {node.lineno}: suppresses everything"


def is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(is_broad(one) for one in caught.elts)
    return caught is None or last_name(caught) in BROAD


def does_nothing(step: ast.stmt) -> bool:
    match step:
        case ast.Pass() | ast.Continue() | ast.Break() | ast.Expr(ast.Constant()):
            return True
        case ast.Return(value):
            return value is None or isinstance(value, ast.Constant)
        case ast.Expr(ast.Call(func=ast.Attribute(value=receiver))):
            return last_name(receiver).lstrip("_").lower() in LOGGERS
    return False


def last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def uses_foreign_words(path: Path, source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            found = WORDS_NOT_USED.search(f"_{snake_case(token.string)}_")
            if found:
                yield f"line {token.start[0]}: {token.string!r} uses the word {found[1]!r}"


def snake_case(identifier: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier).lower()


def is_async(path: Path, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef):
            yield f"line {node.lineno}: async def {node.name}"


def reaches_outside(path: Path, source: str) -> Iterator[str]:
    """Third-party imports and built-in I/O; impure parts of the stdlib are import-linter's."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case ast.Call(func=ast.Name(name)) if name in IO_BUILTINS:
                yield f"line {node.lineno}: calls {name}()"
                continue
            case _:
                continue
        for module in modules:
            ours = module == "shardlog.protocol" or module.startswith("shardlog.protocol.")
            if not ours and module.partition(".")[0] not in sys.stdlib_module_names:
                yield f"line {node.lineno}: imports {module}"


def is_no_decision_record(path: Path, source: str) -> Iterator[str]:
    if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md", path.name):
        yield "is not named NNNN-title.md"
    if not re.search(r"^# \S", source, re.MULTILINE):
        yield "has no heading"
    for section in SECTIONS:
        if not re.search(rf"^(#+ |\*\*){section}\b", source, re.MULTILINE):
            yield f"has no section {section}"


EVERYWHERE: tuple[Rule, ...] = (named_for_nothing, swallows_errors)
IN_PROTOCOL: tuple[Rule, ...] = (uses_foreign_words, is_async, reaches_outside)


def broken(rule: Rule, paths: Iterator[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {what}"
        for path in paths
        for what in rule(path, path.read_text())
    ]


@pytest.mark.parametrize("rule", EVERYWHERE)
def test_everywhere(rule: Rule):
    assert broken(rule, python_files(ROOT)) == []


@pytest.mark.parametrize("rule", IN_PROTOCOL)
def test_in_protocol(rule: Rule):
    assert broken(rule, python_files(PROTOCOL)) == []


def test_protocol_is_where_the_rules_look():
    assert list(python_files(PROTOCOL))


def test_decision_records():
    assert broken(is_no_decision_record, iter(sorted(DECISIONS.glob("*")))) == []


def test_decision_numbers_are_given_once():
    numbers = [path.name[:4] for path in DECISIONS.glob("*")]
    assert len(numbers) == len(set(numbers))


def test_operator_directory_does_not_shadow_the_standard_library():
    assert not (ROOT / "operator" / "__init__.py").exists()


RECORD = "# One\n\n**Context.** a\n\n**Choice.** b\n\n## Measured\n\nc\n\n**Cost.** d\n"


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (named_for_nothing, "shardlog/utils.py", ""),
        (named_for_nothing, "shardlog/common/__init__.py", ""),
        (swallows_errors, "a.py", "try: f()\nexcept Exception: pass"),
        (swallows_errors, "a.py", "try: f()\nexcept: ..."),
        (swallows_errors, "a.py", "try: f()\nexcept (OSError, BaseException): 0"),
        (swallows_errors, "a.py", "try: f()\nexcept Exception as e: self._log.warning(e)"),
        (swallows_errors, "a.py", "with contextlib.suppress(Exception): f()"),
        (uses_foreign_words, "a.py", "current_term = 1"),
        (uses_foreign_words, "a.py", "class PeerSet: pass"),
        (uses_foreign_words, "a.py", "f(LSN=1)"),
        (uses_foreign_words, "a.py", "x.high_watermark"),
        (is_async, "a.py", "async def f(): pass"),
        (reaches_outside, "a.py", "import click"),
        (reaches_outside, "a.py", "from shardlog.sim import world"),
        (reaches_outside, "a.py", "print(1)"),
        (is_no_decision_record, "1-a.md", RECORD),
        (is_no_decision_record, "0001-a.md", RECORD.replace("# One\n", "")),
        (is_no_decision_record, "0001-a.md", RECORD.replace("Measured", "Numbers")),
    ],
)
def test_rule_finds(rule: Rule, name: str, source: str):
    assert list(rule(ROOT / name, source))


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (named_for_nothing, "shardlog/commonplace.py", ""),
        (swallows_errors, "a.py", "try: f()\nexcept KeyError: pass"),
        (swallows_errors, "a.py", "try: f()\nexcept Exception: halt()"),
        (swallows_errors, "a.py", "with contextlib.suppress(KeyError): f()"),
        (uses_foreign_words, "a.py", "memoryview(determine)  # a term in a comment"),
        (is_async, "a.py", "def f(): pass"),
        (reaches_outside, "a.py", "from shardlog.protocol.quorum import x\nimport enum"),
        (is_no_decision_record, "0001-a-b.md", RECORD),
    ],
)
def test_rule_lets_pass(rule: Rule, name: str, source: str):
    assert list(rule(ROOT / name, source)) == []
