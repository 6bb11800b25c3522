"""Jobs with a key: their logs are encrypted as they are written, and nothing readable is left at their end."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.engines import Refused
from turnout.job import Cause, Ended, Trimmed
from turnout.service.lines import Stream
from turnout.vault import KeyGone, KeyRing

NAME = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
MARKER = "marker-4711"
PRINT_MARKER = (
    f"import sys; print('{MARKER} out', flush=True); print('{MARKER} err', file=sys.stderr, flush=True)"
)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(b"\1" * 32)
    return file


@pytest.fixture
def ring(key_file: Path) -> KeyRing:
    return KeyRing({NAME: str(key_file)})


@pytest.fixture(params=["none", "bubblewrap"])
async def harness(
    base_dir: Path, ring: KeyRing, request: pytest.FixtureRequest
) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, sandbox=request.param, ring=ring, log_bytes=4 << 20) as one:
        yield one


def files_with_marker(harness: EngineHarness) -> list[str]:
    """The files that contain the marker."""
    found: list[str] = []
    for directory, _, names in os.walk(harness.base_dir):
        for path in (Path(directory, name) for name in names):
            # The supervisor moves empty directories.
            with suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode) and MARKER.encode() in path.read_bytes():
                    found.append(str(path.relative_to(harness.base_dir)))
    return found


async def test_a_log_is_encrypted_on_disk_and_readable_through_the_engine(harness: EngineHarness):
    attempt = await harness.python(PRINT_MARKER, key=NAME)
    assert (await harness.ended(attempt)).code == 0
    assert harness.output(attempt) == f"{MARKER} out\n"
    assert harness.output(attempt, stream=1) == f"{MARKER} err\n"
    assert files_with_marker(harness) == []


async def test_lines_of_an_encrypted_log_have_their_times(harness: EngineHarness):
    program = "import time\nfor n in range(5): print('line', n, flush=True); time.sleep(0.03)"
    attempt = await harness.python(program, key=NAME)
    end = await harness.ended(attempt)
    lines = list(Stream(harness.engine.log(attempt, MASTER), 0, end.at).lines())
    assert [line.text for line in lines] == [b"line %d" % number for number in range(5)]
    times = [line.at for line in lines]
    assert times == sorted(set(times))
    assert times[-1] <= end.at


async def test_an_encrypted_log_can_be_followed(harness: EngineHarness):
    attempt = await harness.python("import time; print('ready', flush=True); time.sleep(1000)", key=NAME)
    assert await harness.wait_for_output(attempt, "ready\n") == "ready\n"
    await harness.engine.stop(attempt, 0)
    assert (await harness.ended(attempt)).cause is Cause.STOPPED


async def test_all_output_is_available_when_the_end_is_reported(harness: EngineHarness):
    program = "import os\nfor n in range(40_000): os.write(1, b'%07d\\n' % n)\nos._exit(3)"
    attempt = await harness.python(program, key=NAME)
    assert (await harness.ended(attempt)).code == 3
    assert harness.output(attempt).split() == [f"{number:07d}" for number in range(40_000)]


async def test_the_exit_code_is_that_of_the_program(harness: EngineHarness):
    assert (await harness.run("sh", "-c", "exit 7", key=NAME)).code == 7
    assert (await harness.run("sh", "-c", "kill -9 $$", key=NAME)).signal == 9
    missing = await harness.run("/no/such/program", key=NAME)
    assert (missing.cause, missing.code) == (Cause.NOT_FOUND, 127)
    assert "no such program" in missing.message


async def test_the_journal_does_not_contain_the_command(harness: EngineHarness):
    end = await harness.run(f"/no/{MARKER}", key=NAME)
    assert MARKER in end.message
    assert files_with_marker(harness) == []


async def test_dev_stdout_and_dev_stderr_lead_to_the_log(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "echo a; echo b > /dev/stdout; echo c > /dev/stderr", key=NAME)
    assert (await harness.ended(attempt)).code == 0
    assert sorted(harness.output(attempt).split()) == ["a", "b"]
    assert harness.output(attempt, stream=1) == "c\n"


async def test_the_workspace_is_removed_before_the_end_is_reported(harness: EngineHarness):
    write = f"mkdir -p $HOME/a/b; echo {MARKER} > $HOME/a/b/c; chmod 0 $HOME/a; echo {MARKER} > ${{TMPDIR:-/tmp}}/d"
    attempt = await harness.start("sh", "-c", write + "; echo ready; read x", key=NAME)
    assert (await harness.ended(attempt)).code is not None
    assert files_with_marker(harness) == []


async def test_only_the_jobs_own_workspace_has_its_data_while_it_runs(harness: EngineHarness):
    write = f"echo {MARKER}; echo {MARKER} > $HOME/mine; echo ready; sleep 1000"
    attempt = await harness.start("sh", "-c", write, key=NAME, env={"SECRET": MARKER})
    await harness.wait_for_output(attempt, "ready")
    assert files_with_marker(harness) == [
        str(Path("data", "attempts", f"{attempt}_master-0", "space", "work", "mine"))
    ]
    await harness.engine.stop(attempt, 0)
    await harness.ended(attempt)
    assert files_with_marker(harness) == []


async def test_an_encrypted_log_continues_when_service_and_supervisor_are_killed(harness: EngineHarness):
    line = f"b'{MARKER} %d\\n' % n"
    program = f"import os, time\nfor n in range(1000): os.write(1, {line}); time.sleep(0.01)"
    attempt = await harness.python(program, key=NAME)
    await harness.wait_for_output(attempt, f"{MARKER} 3")
    await harness.kill_supervisor()
    at = harness.output(attempt).count("\n")
    await harness.wait_for_output(attempt, f"{MARKER} {at + 20}\n")
    await harness.disconnect()
    await harness.reconnect()
    await harness.engine.stop(attempt, 0)
    assert (await harness.ended(attempt)).cause is Cause.STOPPED
    lines = harness.output(attempt).splitlines()
    assert lines == [f"{MARKER} {number}" for number in range(len(lines))]
    assert files_with_marker(harness) == []
    assert not _log_encrypters(harness)


async def test_an_escaped_process_with_an_open_log_does_not_delay_the_end(harness: EngineHarness):
    attempt = await harness.start("sh", "-c", "env -i setsid sleep 1000 & echo gone", key=NAME)
    assert (await harness.ended(attempt)).code == 0
    assert harness.output(attempt) == "gone\n"


async def test_a_restarted_replica_continues_the_same_log(harness: EngineHarness):
    launch = harness.launch("sh", "-c", f"echo {MARKER}; kill -9 $$", key=NAME)
    await harness.engine.start(launch)
    assert (await harness.ended(launch.attempt)).signal == 9
    await harness.engine.restart(launch, MASTER, 1)
    await harness.wait(lambda report: isinstance(report, Ended) and report.restarts == 1)
    assert harness.output(launch.attempt) == f"{MARKER}\n{MARKER}\n"
    assert harness.engine.log(launch.attempt, MASTER).marks()[-1].stdout == 2 * len(MARKER) + 2
    assert files_with_marker(harness) == []


async def test_an_encrypted_log_above_its_limit_loses_its_middle(harness: EngineHarness):
    program = "import os\nline = b'x' * 999 + b'\\n'\nfor n in range(12_000): os.write(1, line)\nprint('end')"
    attempt = await harness.python(program, key=NAME)
    await harness.ended(attempt)
    await harness.wait(lambda report: isinstance(report, Trimmed) and report.attempt == attempt)
    log = harness.engine.log(attempt, MASTER)
    hole = log.hole(0)
    assert hole is not None
    assert log.size(0) == 12_000_004
    assert log.read(0, hole[1], 1 << 30).endswith(b"x\nend\n")


async def test_without_the_key_jobs_are_refused_and_logs_unreadable(harness: EngineHarness, key_file: Path):
    attempt = await harness.python(PRINT_MARKER, key=NAME)
    await harness.ended(attempt)
    launch = harness.launch("true", key=NAME)
    key_file.unlink()
    with pytest.raises(KeyGone, match=NAME):
        harness.output(attempt)
    with pytest.raises(Refused, match=NAME):
        await harness.engine.start(launch)
    assert (await harness.run("true")).code == 0, "others go on"


@pytest.fixture
def harness_without_ring(base_dir: Path) -> EngineHarness:
    return EngineHarness(base_dir, sandbox="none")


async def test_a_supervisor_older_than_the_key_ring_can_encrypt(
    harness_without_ring: EngineHarness, ring: KeyRing
):
    async with harness_without_ring as harness:
        await harness.disconnect()
        harness._ring = ring
        await harness.reconnect()
        end = await harness.run("true", key=NAME)
        assert end.code == 0 or "let running jobs end first" in end.message


def _log_encrypters(harness: EngineHarness) -> list[int]:
    """Processes that have a file of a replica open."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(str(harness.paths.attempts)) for link in links):
                found.append(int(entry.name))
    return found
