"""The structure of the project: import rules, who reads the environment, length of modules, links in the docs."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from turnout import app

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "turnout"
LONGEST_MODULE = 500

FOR_ALL = {
    "bodies",
    "chaos",
    "child_processes",
    "clusters",
    "config",
    "config_errors",
    "errors",
    "histogram",
    "limits",
    "paths",
    "pools",
    "projects",
    "runtimes",
    "registries",
    "waiting",
    "webhooks",
}

# What each package may import besides itself and FOR_ALL. A line for a module adds to the line of its package.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "access": {"job", "store"},
    "banner": set(),
    "bodies": set(),
    "chaos": set(),
    "child_processes": set(),
    "cli": set(),
    "clusters": set(),
    "cli.doctor": {"engines", "search"},
    "cli.turnout_clusters": {"engines"},
    "cli.serve": {"app"},
    "config": set(),
    "config_errors": set(),
    "data_directory": set(),
    "control": {"job", "store", "engines", "search", "storage"},
    "dialects": {"job", "service", "access", "images"},
    "gateways": {"service", "storage", "access", "job"},
    "gateways.grpc": {"memory"},
    "gateways.runner": {"engines"},
    "engines": {"job", "runner", "vault"},
    "engines.local": {"storage", "images"},
    "engines.remote": {"storage"},
    "errors": set(),
    "histogram": set(),
    "images": {"job"},
    "job": set(),
    "limits": set(),
    "memory": set(),
    "paths": set(),
    "pools": set(),
    "projects": set(),
    "registries": set(),
    "runner": {"job"},
    "runtimes": set(),
    "runner.stager": {"storage"},
    "search": {"job", "store"},
    "server": set(),
    "service": {"job", "store", "storage", "control", "engines", "images"},
    "storage": {"vault"},
    "store": {"job", "vault"},
    "vault": set(),
    "waiting": set(),
    "webhooks": set(),
    "web": {"service", "access"},
}
MAY_IMPORT["wiring"] = set(MAY_IMPORT)
MAY_IMPORT["app"] = set(MAY_IMPORT)

# `job` is pure: it must not use a clock, the disk, a process or a socket.
IMPURE = {
    "asyncio", "multiprocessing", "os", "shutil", "signal", "socket", "sqlalchemy",
    "sqlite3", "starlette", "subprocess", "tempfile", "threading", "time", "uvicorn",
}  # fmt: skip

MODULES = sorted(SOURCES.rglob("*.py"))


def dotted(path: Path) -> str:
    """`job.spec` for `src/turnout/job/spec.py`, `job` for `src/turnout/job/__init__.py`."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


RUNS_IN_JOBS = "dialects.modelarts.search.autosearch"
"""This module runs only inside jobs, so it may read the environment and needs no other package."""
MODULES_OF_JOBS = "runner.modules"
"""The same: modules that programs import by their own names."""
RUNS_ON_NODES = (
    "engines.slurm.start",
    "engines.ray.ray_bridge.replica",
    "engines.ray.ray_bridge.launcher",
)
"""The same, on the nodes of a cluster."""


def of_jobs() -> tuple[str, ...]:
    return tuple(name for name in map(dotted, MODULES) if name.startswith(f"{MODULES_OF_JOBS}."))


def modules(
    within: str = "", without: tuple[str, ...] = ()
) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Makes one test of a check for many modules, which names all that fail."""
    names = {dotted(path): path for path in MODULES}
    inside = (name for name in names if not within or f"{name}.".startswith(f"{within}."))
    chosen = {name: names[name] for name in inside if name not in without}

    def make_test(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            failed: dict[str, str] = {}
            for name, path in chosen.items():
                try:
                    check(path)
                except AssertionError as error:
                    failed[name] = str(error)
            assert chosen
            assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())

        return test

    return make_test


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_bytes())))


@cache
def imports(path: Path) -> list[str]:
    """The full names of all imports of a file, including those inside functions."""
    return list(find_imports(path))


def find_imports(path: Path) -> Iterator[str]:
    package = ["turnout", *path.relative_to(SOURCES).parent.parts]
    for node in nodes(path):
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


def turnout_imports(path: Path) -> Iterator[str]:
    """The modules of Turnout that a file imports, without the prefix `turnout.`. `__version__` does not count."""
    for name in imports(path):
        root, _, rest = name.partition(".")
        package = SOURCES / rest.partition(".")[0]
        if root == "turnout" and rest and (package.is_dir() or package.with_suffix(".py").is_file()):
            yield rest


def top_packages(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def allowed(module: str) -> set[str]:
    rules = (MAY_IMPORT[name] for name in MAY_IMPORT if f"{module}.".startswith(f"{name}."))
    return top_packages([module]) | FOR_ALL | set().union(*rules)


def test_every_package_has_its_import_rule():
    packages = top_packages(map(dotted, MODULES))
    assert packages <= set(MAY_IMPORT), (
        "a new package needs a line in MAY_IMPORT, and one in docs/architecture.md"
    )


@modules()
def test_a_package_imports_only_what_it_may(path: Path):
    may = allowed(dotted(path))
    forbidden = [name for name in turnout_imports(path) if not top_packages([name]) <= may]
    assert not forbidden, f"{dotted(path)} may import only {sorted(may)}"


@modules(within="dialects", without=("dialects",))
def test_a_dialect_imports_no_other_dialect(path: Path):
    others = {folder.name for folder in (SOURCES / "dialects").iterdir() if folder.is_dir()}
    others.discard(dotted(path).split(".")[1])
    known = {name.split(".")[1] for name in turnout_imports(path) if name.startswith("dialects.")}
    assert not known & others


DIALECTS = sorted(path.parent.name for path in (SOURCES / "dialects").glob("*/__init__.py"))


@pytest.mark.parametrize("name", DIALECTS)
def test_all_dialects_have_the_same_modules(name: str):
    parts = {"errors", "routes", "wire"} | (set() if name == "native" else {"translate"})
    assert parts <= {path.stem for path in (SOURCES / "dialects" / name).glob("*.py")}


def test_app_builds_every_dialect_from_the_context():
    kinds = {getattr(kind, "name", ""): kind for kind in app.DIALECTS}
    assert sorted(kinds) == DIALECTS
    for kind in kinds.values():
        assert list(inspect.signature(kind).parameters) == ["context"]
        assert {"owns", "__call__", "make_trial_job", "submit"} <= set(dir(kind))


@modules(without=("app", "wiring.base", "wiring.engines", "cli.doctor"))
def test_only_app_and_doctor_import_an_engine(path: Path):
    known = [name for name in turnout_imports(path) if name.startswith("engines.local")]
    assert dotted(path).startswith("engines.local") or not known


@modules(within="runner.supervisor")
def test_the_supervisor_needs_the_standard_library_only(path: Path):
    others = (name for name in imports(path) if not name.startswith("turnout.runner.supervisor"))
    assert top_packages(others) <= sys.stdlib_module_names


@modules()
def test_no_module_is_too_long(path: Path):
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE


@modules(within="job")
def test_the_job_model_is_pure(path: Path):
    assert not top_packages(imports(path)) & IMPURE


@modules(within=RUNS_IN_JOBS)
def test_a_module_that_jobs_import_needs_the_standard_library_only(path: Path):
    assert top_packages(imports(path)) <= sys.stdlib_module_names


@modules(within=MODULES_OF_JOBS)
def test_modules_for_programs_need_the_standard_library_only(path: Path):
    others = (name for name in imports(path) if not name.startswith("turnout.runner.modules"))
    assert top_packages(others) <= sys.stdlib_module_names


@modules(within=RUNS_ON_NODES[0])
def test_what_nodes_run_first_needs_the_standard_library_only(path: Path):
    assert top_packages(imports(path)) <= sys.stdlib_module_names


@modules(within="engines.ray.ray_bridge")
def test_the_bridge_needs_only_ray_and_the_standard_library(path: Path):
    own = {"turnout.engines.ray.ray_bridge"}
    found = {name for name in imports(path) if not any(name.startswith(one) for one in own)}
    assert top_packages(found) <= sys.stdlib_module_names | {"ray"}


@modules(without=("config", RUNS_IN_JOBS, *of_jobs(), *RUNS_ON_NODES, "runner.node.settings"))
def test_only_config_reads_the_environment(path: Path):
    assert not list(environment_reads(path))


def environment_reads(path: Path) -> Iterator[str]:
    readers = {"environ", "environb", "getenv", "getenvb"}
    for node in nodes(path):
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
        assert target.exists(), f"{link}: there is no such file"
        assert target.is_relative_to(ROOT), f"{link} is outside of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name or document.name} has no heading #{anchor}"


@modules(without=("gateways.grpc.__main__",))
def test_threads_come_from_the_pools(path: Path):
    """asyncio has only a few threads of its own: one caller that blocks them blocks all others."""
    if dotted(path).startswith("runner.stager"):
        return  # it runs in its own process
    found = [
        f"line {node.lineno}: {node.attr}"
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("to_thread", "run_in_executor")
    ]
    assert not found


def test_every_file_that_the_architecture_names_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = [name for name in re.findall(r"`([\w/.]+\.py)`", text) if "<" not in name]
    assert named
    missing = [name for name in named if not any((root / name).exists() for root in (SOURCES, ROOT))]
    assert not missing
