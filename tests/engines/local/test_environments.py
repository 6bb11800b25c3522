"""Runtimes with packages: the environment of a job is made when it is first asked for, and shared."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engines.local.harness import TIMEOUT, EngineHarness
from tests.engines.local.test_shell import run_command, shell
from tests.running import ROOT, children_with
from tests.wheels import make_wheel
from turnout.child_processes.child import ChildProgram
from turnout.engines.local.environments.environments import Environments, in_use
from turnout.engines.local.environments.protection import protect
from turnout.job import Attempt, Cause, Mount, Noted, Pending

SHOW = "import tiny, subprocess; print(tiny.VERSION); subprocess.run(['tiny-where']); print(tiny.__file__)"


def runtimes(base_dir: Path, **named: Any) -> dict[str, Any]:
    """Settings with these runtimes, whose packages are wheels of this test."""
    return {"offline": True, "find_links": [str(base_dir / "wheels")], **named}


@pytest.fixture
def wheels(base_dir: Path) -> Path:
    make_wheel(base_dir / "wheels", "tiny", script="tiny-where")
    return base_dir / "wheels"


@pytest.fixture(params=["bubblewrap", pytest.param("none", marks=pytest.mark.slow)])
async def harness(
    base_dir: Path, wheels: Path, request: pytest.FixtureRequest
) -> AsyncIterator[EngineHarness]:
    named = runtimes(
        base_dir, tiny={"packages": ["tiny"]}, also={"packages": ["tiny"]}, none={"packages": ["absent"]}
    )
    async with EngineHarness(base_dir, sandbox=request.param, runtimes=named) as one:
        yield one


def notes(harness: EngineHarness, attempt: Attempt) -> list[str]:
    return [one.message for one in harness.reports if isinstance(one, Noted) and one.attempt == attempt]


def made(harness: EngineHarness) -> list[Path]:
    """The environments on disk; half-made ones too."""
    return [path for path in harness.paths.environments.iterdir() if path.name not in (".cache", ".shims")]


async def test_a_job_waits_for_its_environment_and_the_next_one_finds_it(harness: EngineHarness):
    end = await harness.run("python", "-c", SHOW, runtime="tiny")
    assert end.code == 0, harness.output(end.attempt, stream=1) + end.message
    [environment] = made(harness)
    version, by_script, by_import = harness.output(end.attempt).split()
    assert (version, by_script) == ("1.0", by_import)
    assert Path(by_import).is_relative_to(environment)
    told = notes(harness, end.attempt)
    assert re.fullmatch(r"making the environment of the runtime tiny on Python 3\.\S+: tiny", told[0])
    assert any(line.startswith("Installed 1 package") for line in told)
    assert told[-1].endswith(" with tiny==1.0")
    waits = [one.message for one in harness.reports if isinstance(one, Pending)]
    assert "is being made" in waits[0]
    assert waits[-1] == ""

    same = await harness.run("sh", "-c", "tiny-where", runtime="also")
    assert harness.output(same.attempt).split() == [by_import]
    assert len(notes(harness, same.attempt)) == 1, "nothing is made again for a runtime of the same packages"


async def test_no_job_can_change_it(harness: EngineHarness):
    change = "import sys, os; open(os.path.join(sys.prefix, 'mine'), 'w')"
    end = await harness.run("python", "-c", change, runtime="tiny")
    assert end.code == 1
    if os.geteuid() == 0 or harness.sandbox == "bubblewrap":
        own = "import tiny, os; os.chmod(tiny.__file__, 0o644)"
        assert (await harness.run("python", "-c", own, runtime="tiny")).code == 1
    [environment] = made(harness)
    assert {path.lstat().st_uid for path in environment.rglob("*")} == {os.geteuid()}
    assert not [path for path in environment.rglob("*") if path.is_file() and path.stat().st_mode & 0o022]


@pytest.mark.slow
async def test_pip_installs_more_into_a_directory_of_the_job(harness: EngineHarness, wheels: Path):
    make_wheel(wheels, "more")
    install = (
        "python3 -m pip install --quiet --no-index --target=$HOME/more /wheels/more-1.0-py3-none-any.whl"
    )
    use = "PYTHONPATH=$HOME/more python -c 'import more, tiny; print(more.VERSION)'"
    mount = Mount(f"file://{wheels}", "/wheels", read_only=True)
    where = "" if harness.sandbox == "bubblewrap" else "$TURNOUT_ROOT"
    script = f"{install} && {use}".replace("/wheels/", f"{where}/wheels/")
    end = await harness.run("sh", "-c", script, runtime="tiny", mounts=(mount,))
    assert harness.output(end.attempt) == "1.0\n", harness.output(end.attempt, stream=1)


async def test_jobs_that_want_the_same_share_one_build(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    builds = count_builds(monkeypatch)
    attempts = [await harness.python(SHOW, runtime=name) for name in ("tiny", "also", "tiny")]
    ends = [await harness.ended(attempt) for attempt in attempts]
    assert [end.code for end in ends] == [0, 0, 0]
    assert len(builds) == 1
    assert all(any("is ready" in line for line in notes(harness, attempt)) for attempt in attempts)


@pytest.mark.slow
async def test_a_shell_has_it_too(harness: EngineHarness):
    attempt = await harness.python("import time; print('up'); time.sleep(60)", runtime="tiny")
    await harness.wait_for_output(attempt, "up")
    async with shell(harness, attempt) as terminal:
        lines = await run_command(terminal, "tiny-where; python -c 'import tiny; print(tiny.VERSION)'")
    assert (lines[0].endswith("/tiny.py"), lines[1]) == (True, "1.0")


@pytest.mark.slow
async def test_a_stopped_job_does_not_stop_the_build_of_another(harness: EngineHarness):
    first = await harness.python(SHOW, runtime="tiny")
    second = await harness.python(SHOW, runtime="tiny")
    await harness.engine.stop(first, 0)
    assert (await harness.ended(first)).cause is Cause.STOPPED
    assert (await harness.ended(second)).code == 0


async def test_a_failure_has_its_reason_and_is_not_repeated(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    builds = count_builds(monkeypatch)
    end = await harness.run("python", "-c", SHOW, runtime="none")
    assert end.cause is Cause.REFUSED
    assert re.match(
        r"the environment of the runtime none \(absent\) could not be made on Python 3\..*: ", end.message
    )
    assert "absent was not found" in end.message
    assert "[runtimes.none]" in end.message
    assert (await harness.run("python", "-c", SHOW, runtime="none")).message == end.message
    assert len(builds) == 1
    assert made(harness) == []

    make_wheel(harness.base_dir / "wheels", "absent")
    lines = [line async for line in harness.engine.runtimes.make("none")]
    assert lines[-1].startswith("the environment of the runtime none is ready")
    assert (await harness.run("python", "-c", "import absent", runtime="none")).code == 0


@pytest.mark.slow
async def test_the_builder_is_killed(harness: EngineHarness):
    attempt = await harness.python(SHOW, runtime="tiny")
    await harness.wait(lambda report: isinstance(report, Noted))
    builder = await builder_process()
    builder.send_signal(signal.SIGKILL)
    end = await harness.ended(attempt)
    assert "was killed by SIGKILL" in end.message
    assert made(harness) == []


@pytest.mark.slow
async def test_what_a_killed_service_left_is_removed(harness: EngineHarness):
    await harness.disconnect()
    draft = harness.paths.environments / ".making-0123456789abcdef01234567"
    (draft / "environment" / "bin").mkdir(parents=True)
    await harness.reconnect()
    assert made(harness) == []
    assert (await harness.run("python", "-c", SHOW, runtime="tiny")).code == 0


async def test_the_default_runtime_is_for_jobs_that_name_none(base_dir: Path, wheels: Path):
    named = runtimes(
        base_dir, default="tiny", tiny={"packages": ["tiny"]}, plain={"python": "/usr/bin/python3"}
    )
    async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
        for runtime in ("", "some/image:1"):
            assert (await harness.run("python", "-c", "import tiny", runtime=runtime)).code == 0
        for runtime in ("plain", "host"):
            assert (await harness.run("python", "-c", "import tiny", runtime=runtime)).code == 1


async def test_a_requirements_file_and_a_version_of_python(base_dir: Path, wheels: Path):
    make_wheel(wheels, "more", "2.0")
    file = base_dir / "requirements.txt"
    file.write_text("# what the program needs\ntiny==1.0\nmore >= 1\n")
    named = runtimes(base_dir, both={"requirements": str(file), "python": host_version()})
    async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
        end = await harness.run("python", "-c", "import tiny, more; print(more.VERSION)", runtime="both")
        assert harness.output(end.attempt) == "2.0\n", end.message
        [view] = await harness.engine.runtimes.all()
        assert (view.name, view.state, view.default) == ("both", "ready", False)
        assert {"more==2.0", "tiny==1.0"} <= set(view.installed)


@pytest.mark.slow
async def test_another_content_of_the_file_is_another_environment(base_dir: Path, wheels: Path):
    file = base_dir / "requirements.txt"
    for text in ("tiny\n", "tiny==1.0\n"):
        file.write_text(text)
        named = runtimes(base_dir, one={"requirements": str(file)})
        async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
            assert (await harness.run("python", "-c", SHOW, runtime="one")).code == 0
    assert len(made(harness)) == 2
    # The sweep removes the one that no runtime needs any more.
    async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
        assert harness.engine.clear_environments(2**40, True)[0] == 1
        assert harness.engine.clear_environments(0.0, False) == (0, 0)
        assert harness.engine.clear_environments(1.0, False) == (0, 0)
        count, size = harness.engine.clear_environments(2**40, False)
        assert (count, size > 10_000) == (1, True)
        assert len([path for path in made(harness) if not path.name.startswith(".")]) == 1
        assert (await harness.run("python", "-c", SHOW, runtime="one")).code == 0


@pytest.mark.slow
async def test_what_a_job_uses_is_not_removed(harness: EngineHarness):
    attempt = await harness.python(f"{SHOW}; import time; print('up'); time.sleep(60)", runtime="tiny")
    await harness.wait_for_output(attempt, "up")
    [environment] = made(harness)
    assert in_use(harness.paths.environments) == {environment.name}


@pytest.mark.slow
async def test_a_build_that_takes_too_long(base_dir: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch):
    named = runtimes(base_dir, make_seconds=1, tiny={"packages": ["tiny"]})
    program = ChildProgram(
        "process that does nothing", "tests.engines.local.test_environments", "sleep", str(ROOT)
    )
    monkeypatch.setattr("turnout.engines.local.environments.environments.PROGRAM", program)
    async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
        end = await harness.run("python", "-c", SHOW, runtime="tiny")
        assert "it took longer than 1 s" in end.message
        assert made(harness) == []


@pytest.mark.slow
async def test_packages_are_not_built_unless_the_settings_say_so(base_dir: Path):
    source = base_dir / "wheels" / "odd-1.0"
    source.mkdir(parents=True)
    (source / "setup.py").write_text(f"open({str(base_dir / 'ran')!r}, 'w')")
    os.system(f"tar -C {source.parent} -czf {source}.tar.gz {source.name} && rm -r {source}")
    async with EngineHarness(
        base_dir, sandbox="bubblewrap", runtimes=runtimes(base_dir, odd={"packages": ["odd"]})
    ) as harness:
        end = await harness.run("true", runtime="odd")
        assert "wheel" in end.message
    assert not (base_dir / "ran").exists()


async def test_without_uv_such_jobs_are_refused(
    base_dir: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("turnout.engines.local.environments.environments.find_uv", lambda: None)
    named = runtimes(base_dir, tiny={"packages": ["tiny"]})
    async with EngineHarness(base_dir, sandbox="bubblewrap", runtimes=named) as harness:
        assert "uv is not installed" in harness.engine.refuses(harness.launch("true", runtime="tiny"))
        assert harness.engine.refuses(harness.launch("true")) == ""
        checked = [one async for one in harness.engine.runtimes.check("tiny")]
        assert [(one.what, one.ok) for one in checked] == [("python", True), ("uv", False)]


async def test_check_finds_the_packages_and_installs_nothing(harness: EngineHarness):
    checked = {one.what: one async for one in harness.engine.runtimes.check("tiny")}
    assert checked["packages"].detail == "1 to install: tiny==1.0"
    assert made(harness) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_it_is_made_by_a_user_that_no_job_and_no_layer_of_an_image_has(harness: EngineHarness):
    cache = harness.paths.environments / ".cache"
    cache.mkdir()
    (cache / "of-another-range").mkdir()
    for path in (cache / "of-another-range", cache):
        os.chown(path, 1234, 1234)
    assert (await harness.run("python", "-c", SHOW, runtime="tiny")).code == 0
    builder = harness.accounts.builder.uid
    assert {path.lstat().st_uid for path in (cache, *cache.iterdir())} == {builder}
    assert builder not in {harness.accounts.anyone.uid, harness.accounts.of("default").uid}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users' files")
def test_a_file_of_another_user_is_not_sealed(base_dir: Path):
    """A program of a package may have linked it while the environment was made."""
    environment = base_dir / "environment"
    environment.mkdir()
    for name, owner in (("own", 1234), ("service's", 0), ("foreign", 33)):
        (environment / name).write_text("x")
        os.chown(environment / name, owner, owner)
    (environment / "service's").chmod(0o600)
    with pytest.raises(PermissionError, match="foreign belongs to user 33"):
        protect(str(environment), 1234)
    assert (environment / "service's").stat().st_mode & 0o777 == 0o600
    (environment / "foreign").unlink()
    os.mkfifo(environment / "pipe")
    with pytest.raises(PermissionError, match="pipe is neither a file nor a directory"):
        protect(str(environment), 1234)


def sleep() -> None:
    time.sleep(TIMEOUT)


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    build: Callable[..., Awaitable[list[str]]] = Environments._build
    builds: list[str] = []

    async def counted(self: Environments, definition: Any, *args: Any, **kwargs: Any) -> list[str]:
        builds.append(definition.runtime)
        return await build(self, definition, *args, **kwargs)

    monkeypatch.setattr(Environments, "_build", counted)
    return builds


async def builder_process() -> psutil.Process:
    """As soon as it is there."""
    async with asyncio.timeout(TIMEOUT):
        while not (found := children_with(os.getpid(), "environments.builder")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found[0]


def host_version() -> str:
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run(["/usr/bin/python3", "-c", show], capture_output=True, text=True).stdout.strip()
