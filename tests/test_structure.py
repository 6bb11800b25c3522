"""The rules of the house: who may import whom, who reads the environment, and no dead link in the docs."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "turnout"

FOR_ALL = {"chaos", "config", "errors", "paths"}

# What each room may import besides itself and what is for all. More exact names come on top of their room's.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "access": {"job", "store"},
    "chaos": set(),
    "cli": set(),
    "cli.doctor": {"app"},
    "cli.serve": {"app"},
    "config": set(),
    "control": {"job", "store", "engines", "search", "storage"},
    "dialects": {"job", "service", "access"},
    "doors": {"service", "storage", "access"},
    "engines": {"job", "runner", "vault"},
    "errors": set(),
    "job": set(),
    "paths": set(),
    "runner": {"job"},
    "runner.stage": {"storage"},
    "search": {"job", "store"},
    "service": {"job", "store", "storage", "control"},
    "storage": {"vault"},
    "store": {"job", "vault"},
    "vault": set(),
    "web": {"service", "access"},
}
MAY_IMPORT["app"] = set(MAY_IMPORT)

# `job` is pure: nothing in it can reach a clock, a disk, a process or a socket.
IMPURE = {
    "asyncio", "multiprocessing", "os", "shutil", "signal", "socket", "sqlalchemy",
    "sqlite3", "starlette", "subprocess", "tempfile", "threading", "time", "uvicorn",
}  # fmt: skip

MODULES = sorted(HOUSE.rglob("*.py"))


def dotted(path: Path) -> str:
    """`src/turnout/job/spec.py` is `job.spec`, a package is its folder's name."""
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


GIVEN = "dialects.modelarts.autosearch"
"""It runs in the programs of jobs, and nowhere else."""


def modules(within: str = "", without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    names = {dotted(path): path for path in MODULES}
    inside = (name for name in names if not within or f"{name}.".startswith(f"{within}."))
    chosen = [name for name in inside if name not in without]
    return pytest.mark.parametrize("path", [names[name] for name in chosen], ids=chosen)


def imports(path: Path) -> Iterator[str]:
    """The full names of what a file imports, wherever in it the import stands."""
    package = ["turnout", *path.relative_to(HOUSE).parent.parts]
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) + 1 - level] if level else []
                origin = ".".join([*above, *([module] if module else [])])
                yield from (f"{origin}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def ours(path: Path) -> Iterator[str]:
    """What a file imports of Turnout's rooms (`__version__` is none), from the room's name on."""
    for name in imports(path):
        root, _, rest = name.partition(".")
        room = HOUSE / rest.partition(".")[0]
        if root == "turnout" and rest and (room.is_dir() or room.with_suffix(".py").is_file()):
            yield rest


def tops(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def allowed(module: str) -> set[str]:
    exact = (MAY_IMPORT[name] for name in MAY_IMPORT if f"{module}.".startswith(f"{name}."))
    return tops([module]) | FOR_ALL | set().union(*exact)


def test_every_room_is_in_the_plan():
    rooms = tops(map(dotted, MODULES))
    assert rooms <= set(MAY_IMPORT), "a new room needs a line in MAY_IMPORT, and one in CONTRIBUTING.md"


@modules()
def test_a_room_imports_only_what_it_may(path: Path):
    may = allowed(dotted(path))
    strangers = [name for name in ours(path) if not tops([name]) <= may]
    assert not strangers, f"{dotted(path)} may import only {sorted(may)}"


@modules(within="dialects", without=("dialects",))
def test_a_dialect_does_not_know_another(path: Path):
    others = {folder.name for folder in (HOUSE / "dialects").iterdir() if folder.is_dir()}
    others.discard(dotted(path).split(".")[1])
    known = {name.split(".")[1] for name in ours(path) if name.startswith("dialects.")}
    assert not known & others


@modules(within="runner.keeper")
def test_the_keeper_needs_the_standard_library_only(path: Path):
    others = (name for name in imports(path) if not name.startswith("turnout.runner.keeper"))
    assert tops(others) <= sys.stdlib_module_names


@modules(within="job")
def test_the_job_model_is_pure(path: Path):
    assert not tops(imports(path)) & IMPURE


@modules(within=GIVEN)
def test_what_programs_are_given_needs_the_standard_library_only(path: Path):
    assert tops(imports(path)) <= sys.stdlib_module_names


@modules(without=("config", GIVEN))
def test_only_config_reads_the_environment(path: Path):
    assert not list(environment_reads(path))


def environment_reads(path: Path) -> Iterator[str]:
    readers = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in readers:
                yield f"line {node.lineno}: os.{attr}"
            case ast.ImportFrom(module="os", names=names):
                yield from (f"line {node.lineno}: {a.name}" for a in names if a.name in readers)
            case ast.keyword(arg="envvar"):
                yield f"line {node.lineno}: envvar="


DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"""\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)="([^"]+)\"""", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def links(document: Path) -> Iterator[str]:
    text = CODE.sub("", document.read_text())
    found = (next(filter(None, groups)) for groups in LINK.findall(text))
    return (link for link in found if not ELSEWHERE.match(link))


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+\s+(.+?)\s*#*$", document.read_text(), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_is_dead(document: Path):
    for link in links(document):
        name, _, anchor = unquote(link).partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name or document.name} has no heading #{anchor}"
