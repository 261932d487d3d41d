"""The rules of the house that no linter knows: names, sizes, docstrings, citations, and what an import may cost."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.rows import each_row

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "steersman").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST = 400
THEIRS = {"server/server.py": "handler"}  # aiohttp gives a middleware its handler by this name
VAGUE = re.compile(r"manager|handler|helper|utils?(?![a-z])", re.IGNORECASE)
RULES = {
    f"{letter}{number}" for letter, count in [("R", 8), ("T", 12), ("D", 9), ("C", 6)] for number in range(1, count + 1)
}
CITATION = re.compile(r"\b(R[1-8]|T(?:1[0-2]|[1-9])|D[1-9]|C[1-6])\b")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


@dataclass(frozen=True, slots=True)
class Found:
    """What breaks a rule, for each rule that looks into every module: all are looked at in one pass."""

    vague: list[str] = field(default_factory=list[str])
    undocumented: list[str] = field(default_factory=list[str])
    participles: list[str] = field(default_factory=list[str])
    unguarded: list[str] = field(default_factory=list[str])
    wall_clock: list[str] = field(default_factory=list[str])


@pytest.fixture(scope="module")
def found() -> Found:
    found = Found()
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        tree, inside = ast.parse(text), path.relative_to(ROOT / "src" / "steersman").as_posix()
        names = [(line, name) for line, name in defined_names(tree) if name != THEIRS.get(inside)]
        found.vague.extend(f"{shown(path)}:{line} {name}" for line, name in names if VAGUE.search(name))
        found.vague.extend([shown(path)] if VAGUE.search(path.stem) else [])
        found.undocumented.extend(f"{shown(path)} {name}" for name in undocumented(tree))
        found.participles.extend(f"{shown(path)}:{line} {name}" for line, name in participles(tree))
        found.unguarded.extend([shown(path)] if "reportUnnecessaryIsInstance" in text else [])
        found.wall_clock.extend([inside] if reads_wall_clock(tree) else [])
    return found


def test_names_say_what_a_thing_is(found: Found) -> None:
    assert found.vague == []


def test_no_module_is_long() -> None:
    long = [path for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST]
    assert [shown(path) for path in long] == []


# The wall clock may be set while a program runs, so it tells when something was, and never how long to wait.
WALL_CLOCK = {
    "times of messages, events and records": [
        "cli/run/output.py",
        "durable/workflow_agent/plugin.py",
        "loop/run.py",
        "policy/ready/audit.py",
        "server/fronts/openai/requests.py",
        "session/journal.py",
        "session/opening.py",
        "session/stores/jsonl.py",
        "session/stores/memory.py",
        "session/stores/postgres/store.py",
        "session/session.py",
        "session/stores/sqlite/store.py",
        "tools/checkpoints/checkpoints.py",
        "telemetry/backlog.py",
    ],
    "a point in time that a server names without its own date": [
        "provider/wires/anthropic/errors.py",
        "provider/wires/bedrock/errors.py",
        "provider/streaming/failures.py",
        "provider/wires/google/errors.py",
        "provider/http/headers.py",
        "provider/wires/openai_chat/errors.py",
        "provider/wires/openai_responses/errors.py",
    ],
    "whether a file or folder changed so recently that its time stamp may not change again": [
        "tools/checkpoints/scan.py",
        "tools/confine/folder_snapshot.py",
    ],
    "the date of a signature": [
        "provider/clouds/bedrock.py",
    ],
    "today's date and prices, and how long ago something was": [
        "cli/sessions/printing.py",
        "cli/setup/startup.py",
        "policy/ready/budget.py",
        "provider/models/catalogue.py",
        "provider/local/weights/cache.py",
    ],
}
READINGS = {"time", "time_ns", "localtime", "gmtime", "ctime", "now", "utcnow", "today"}
WALL = re.compile(r"(?:time\.(?:time|time_ns|localtime|gmtime|ctime)|(?:datetime|date)\.(?:now|utcnow|today))$")


def reads_wall_clock(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in READINGS and WALL.search(ast.unparse(node)):
                return True
            case ast.ImportFrom(module="time") if any(name.name in ("time", "time_ns") for name in node.names):
                return True
            case _:
                pass
    return False


def test_no_module_waits_by_the_wall_clock(found: Found) -> None:
    """failures.md E14: a module that reads it says here what for; deadlines are the event loop's, or monotonic."""
    assert found.wall_clock == sorted(path for paths in WALL_CLOCK.values() for path in paths)


def undocumented(tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "the module"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None:
                yield f"class {node.name}"
            yield from (f"{node.name}.{name}" for name in _undocumented_functions(node.body))
    yield from _undocumented_functions(tree.body)


def _undocumented_functions(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            stub = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            setter = any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in node.decorator_list)
            if ast.get_docstring(node) is None and not (stub and len(node.body) == 1) and not setter:
                yield node.name


def test_everything_public_has_a_docstring(found: Found) -> None:
    """A line such as `def name(self) -> str: ...` of a protocol speaks for itself, and a getter for its setter."""
    assert found.undocumented == []


def test_one_guard_looks_at_values_whose_type_is_promised(found: Found) -> None:
    """A check that a type checker calls unnecessary is `types.guards.is_instance`, not a suppressed `isinstance`."""
    assert found.unguarded == []


LOOP = sorted((ROOT / "src" / "steersman" / "loop").rglob("*.py"))
MOST_PARAMETERS = 6


def count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return len([argument for argument in every if argument is not None and argument.arg not in ("self", "cls")])


@each_row("path", LOOP, ids=shown)
def test_no_function_of_the_loop_has_more_than_six_parameters(path: Path) -> None:
    functions = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [
        f"{shown(path)}:{node.lineno} {node.name}" for node in functions if count_parameters(node) > MOST_PARAMETERS
    ]
    assert long == []


def test_the_public_names_are_sorted_and_importable() -> None:
    import steersman
    import steersman.testing

    for module in (steersman, steersman.testing):
        names: list[str] = list(getattr(module, "__all__", []))
        assert names == sorted(names)
        assert len(names) == len(set(names))
        assert [name for name in names if not hasattr(module, name)] == []


def cited_rules() -> set[str]:
    cited: set[str] = set()
    for path in TESTS:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "loop.md" in text else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for words in (ast.get_docstring(node) or "").split("loop.md")[1:]:
                    cited.update(CITATION.findall(words.partition("failures.md")[0]))
    return cited


def test_every_rule_of_the_loop_is_cited_by_a_test() -> None:
    assert sorted(RULES - cited_rules()) == []


def test_importing_steersman_stays_light() -> None:
    heavy = ("aiohttp", "pydantic", "hypothesis", "pytest", "steersman.testing", "steersman.provider.scripted.model")
    program = f"import sys, steersman; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("[]", "", 0)


LAZY = [path for path in SOURCES if path.name == "__init__.py" and "export_lazily(" in path.read_text(encoding="utf-8")]


@each_row("path", LAZY, ids=shown)
def test_lazy_names_are_imported_for_type_checkers_and_listed(path: Path) -> None:
    """The table given to `export_lazily`, the imports under TYPE_CHECKING and `__all__` say the same."""
    package = ".".join(path.parent.relative_to(ROOT / "src").parts)
    checked, table, eager = set[tuple[str, str]](), set[tuple[str, str]](), set[str]()
    for node in tree_of(path).body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=imports):
                for item in imports:
                    if isinstance(item, ast.ImportFrom):
                        checked.update((str(item.module), name.name) for name in item.names)
            case ast.Assign(value=ast.Call(func=ast.Name(id="export_lazily"), args=[_, ast.Dict() as modules])):
                for module, names in ast.literal_eval(modules).items():
                    home = module if module.startswith("steersman.") else f"{package}.{module}"
                    table.update((home, name) for name in names.split())
            case ast.ImportFrom():
                eager.update(name.name for name in node.names)
            case _:
                pass
    module = importlib.import_module(package)
    assert table == checked
    listed = {name for _, name in table}
    assert listed <= set(module.__all__) <= listed | eager
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


# Function names are verbs. A participle (`_asked`, `shown`) says what happened instead of what to do.
IRREGULAR = (
    "asked begun bound broken brought built caught chosen done drawn fed felt found given gone grown heard held "
    "hidden kept known laid led left lent lost made meant met paid said seen sent shown spent spoken taken thought "
    "told written"
)
PARTICIPLE = re.compile(rf"^(?:{IRREGULAR.replace(' ', '|')}|un[a-z]+ed|[a-z]{{2,}}(?<!e)ed)$")
NO_PARTICIPLES = frozenset(
    {"bleed", "embed", "exceed", "feed", "need", "proceed", "read", "seed", "shed", "speed", "succeed"}
)
PREDICATES = (
    "is",
    "are",
    "was",
    "has",
    "have",
    "had",
    "can",
    "may",
    "must",
    "should",
    "needs",
    "wants",
    "does",
    "did",
    "will",
)
# In two words, a noun before a participle makes a report of what happened (`_call_ended`).
NOUNS = frozenset(
    {
        "all",
        "answer",
        "batch",
        "call",
        "compaction",
        "connection",
        "data",
        "duration",
        "end",
        "entry",
        "gates",
        "input",
        "key",
        "limit",
        "loop",
        "message",
        "nothing",
        "others",
        "part",
        "process",
        "request",
        "response",
        "session",
        "step",
        "tool",
        "turn",
    }
)
# Participles that stay, each with its reason.
PARTICIPLES_THAT_STAY = {
    "__reversed__": "Python's own name",
    "batched": "the public name of a mode of tool execution",
    "connection_lost": "asyncio calls it by this name",
    "connection_made": "asyncio calls it by this name",
    "data_received": "asyncio calls it by this name",
    "encoded": "a documented method of Replayed",
    "process_exited": "asyncio calls it by this name",
}


def function_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every function that is not a property: decorators whose name contains `property` or a setter make one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if not any("property" in mark or mark.endswith(".setter") for mark in marks):
                yield node.lineno, node.name


def is_participle(name: str) -> bool:
    """Whether a name begins with a participle, or is a noun followed by one (`_call_ended`)."""
    words = name.strip("_").split("_")
    if not words[0] or words[0] in PREDICATES:
        return False
    found = [bool(PARTICIPLE.match(word)) and word not in NO_PARTICIPLES for word in words]
    return found[0] or (len(words) == 2 and found[1] and words[0] in NOUNS)


def participles(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, name in function_names(tree):
        if is_participle(name) and name not in PARTICIPLES_THAT_STAY:
            yield line, name


def test_function_names_are_verbs(found: Found) -> None:
    assert found.participles == []


RIDDLES = re.compile(r"\b(?:whoever|nobody|somebody|anybody)\b", re.IGNORECASE)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_sentences_name_who_acts() -> None:
    """Fewer than thirty of these words in source and documents: a sentence without them is nearly always plainer."""
    found = [
        f"{shown(path)}:{number}"
        for path in (*SOURCES, *DOCUMENTS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for _ in RIDDLES.findall(line)
    ]
    assert len(found) < 30, found


# Words that a newcomer greps for, and that must lead to the code they are about.
TERMS = {
    "TOCTOU": "tools/confine",
    "SSRF": "tools/confine",
    "backoff": "provider/streaming",
    "content-encoding": "provider/http",
    "fsync": "session",
    "idempotent": "loop",
    "surrogate": "types",
    "token budget": "provider/wires",
}


@each_row("term", TERMS)
def test_a_term_of_art_finds_its_code(term: str) -> None:
    home = ROOT / "src" / "steersman" / TERMS[term]
    assert [shown(path) for path in home.rglob("*.py") if term.lower() in path.read_text(encoding="utf-8").lower()]


# Modules that may have one name in one room, because they are the same thing for siblings.
SIBLINGS = {
    "server": {"front"},
    "provider": {"chunks", "decode", "encode", "errors", "events", "schema", "wire"},
    "session": {"handle", "queue", "store", "tables"},
    "testing": {"messages", "request", "server"},
}


def test_no_two_modules_of_a_room_have_one_name() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for path in SOURCES:
        room = path.relative_to(ROOT / "src" / "steersman").parts[0]
        if path.stem != "__init__" and path.stem not in SIBLINGS.get(room, ()):
            found.setdefault((room, path.stem), []).append(shown(path))
    assert [paths for paths in found.values() if len(paths) > 1] == []
