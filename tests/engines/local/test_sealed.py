"""Jobs with a key: their logs are sealed as they are written, and nothing readable of them is left at their end."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.engines import Refused
from turnout.job import Cause, Ended, Trimmed
from turnout.service.lines import Stream
from turnout.vault import KeyGone, KeyRing

NAME = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
MARKER = "marker-4711"
SAY = f"import sys; print('{MARKER} out', flush=True); print('{MARKER} err', file=sys.stderr, flush=True)"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(b"\1" * 32)
    return file


@pytest.fixture
def ring(key_file: Path) -> KeyRing:
    return KeyRing({NAME: str(key_file)})


@pytest.fixture(params=["none", "bubblewrap"])
async def yard(place: Path, ring: KeyRing, request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    async with Yard(place, sandbox=request.param, ring=ring, log_bytes=4 << 20) as one:
        yield one


def readable(yard: Yard) -> list[str]:
    """The files that have the marker in them."""
    found: list[str] = []
    for directory, _, names in os.walk(yard.place):
        for path in (Path(directory, name) for name in names):
            # The keeper moves empty directories about.
            with suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode) and MARKER.encode() in path.read_bytes():
                    found.append(str(path.relative_to(yard.place)))
    return found


async def test_a_log_is_sealed_and_read_as_any_other(yard: Yard):
    attempt = await yard.python(SAY, key=NAME)
    assert (await yard.ended(attempt)).code == 0
    assert yard.out(attempt) == f"{MARKER} out\n"
    assert yard.out(attempt, stream=1) == f"{MARKER} err\n"
    assert readable(yard) == []


async def test_lines_have_their_times(yard: Yard):
    program = "import time\nfor n in range(5): print('line', n, flush=True); time.sleep(0.03)"
    attempt = await yard.python(program, key=NAME)
    end = await yard.ended(attempt)
    lines = list(Stream(yard.engine.log(attempt, MASTER), 0, end.at).lines())
    assert [line.text for line in lines] == [b"line %d" % number for number in range(5)]
    times = [line.at for line in lines]
    assert times == sorted(set(times))
    assert times[-1] <= end.at


async def test_it_can_be_followed(yard: Yard):
    attempt = await yard.python("import time; print('ready', flush=True); time.sleep(1000)", key=NAME)
    assert await yard.printed(attempt, "ready\n") == "ready\n"
    await yard.engine.stop(attempt, 0)
    assert (await yard.ended(attempt)).cause is Cause.STOPPED


async def test_all_that_it_printed_is_there_when_its_end_is_told(yard: Yard):
    program = "import os\nfor n in range(40_000): os.write(1, b'%07d\\n' % n)\nos._exit(3)"
    attempt = await yard.python(program, key=NAME)
    assert (await yard.ended(attempt)).code == 3
    assert yard.out(attempt).split() == [f"{number:07d}" for number in range(40_000)]


async def test_the_exit_is_the_programs(yard: Yard):
    assert (await yard.run("sh", "-c", "exit 7", key=NAME)).code == 7
    assert (await yard.run("sh", "-c", "kill -9 $$", key=NAME)).signal == 9
    missing = await yard.run("/no/such/program", key=NAME)
    assert (missing.cause, missing.code) == (Cause.NOT_FOUND, 127)
    assert "no such program" in missing.message


async def test_what_names_a_program_stays_out_of_the_journal(yard: Yard):
    end = await yard.run(f"/no/{MARKER}", key=NAME)
    assert MARKER in end.message
    assert readable(yard) == []


async def test_names_of_the_standard_streams_lead_to_the_log(yard: Yard):
    attempt = await yard.start("sh", "-c", "echo a; echo b > /dev/stdout; echo c > /dev/stderr", key=NAME)
    assert (await yard.ended(attempt)).code == 0
    assert sorted(yard.out(attempt).split()) == ["a", "b"]
    assert yard.out(attempt, stream=1) == "c\n"


async def test_its_workspace_is_gone_before_its_end_is_told(yard: Yard):
    write = f"mkdir -p $HOME/a/b; echo {MARKER} > $HOME/a/b/c; chmod 0 $HOME/a; echo {MARKER} > ${{TMPDIR:-/tmp}}/d"
    attempt = await yard.start("sh", "-c", write + "; echo ready; read x", key=NAME)
    assert (await yard.ended(attempt)).code is not None
    assert readable(yard) == []


async def test_while_it_runs_only_its_own_space_has_what_it_writes(yard: Yard):
    write = f"echo {MARKER}; echo {MARKER} > $HOME/mine; echo ready; sleep 1000"
    attempt = await yard.start("sh", "-c", write, key=NAME, env={"SECRET": MARKER})
    await yard.printed(attempt, "ready")
    assert readable(yard) == [str(Path("data", "attempts", f"{attempt}_master-0", "work", "mine"))]
    await yard.engine.stop(attempt, 0)
    await yard.ended(attempt)
    assert readable(yard) == []


async def test_it_goes_on_when_service_and_keeper_are_killed(yard: Yard):
    line = f"b'{MARKER} %d\\n' % n"
    program = f"import os, time\nfor n in range(1000): os.write(1, {line}); time.sleep(0.01)"
    attempt = await yard.python(program, key=NAME)
    await yard.printed(attempt, f"{MARKER} 3")
    await yard.kill_keeper()
    at = yard.out(attempt).count("\n")
    await yard.printed(attempt, f"{MARKER} {at + 20}\n")
    await yard.leave()
    await yard.come_back()
    await yard.engine.stop(attempt, 0)
    assert (await yard.ended(attempt)).cause is Cause.STOPPED
    lines = yard.out(attempt).splitlines()
    assert lines == [f"{MARKER} {number}" for number in range(len(lines))]
    assert readable(yard) == []
    assert not _pumps(yard)


async def test_what_an_escaped_process_holds_open_does_not_hold_up_the_end(yard: Yard):
    attempt = await yard.start("sh", "-c", "env -i setsid sleep 1000 & echo gone", key=NAME)
    assert (await yard.ended(attempt)).code == 0
    assert yard.out(attempt) == "gone\n"


async def test_one_that_is_started_again_in_its_place_goes_on_in_the_same_log(yard: Yard):
    launch = yard.launch("sh", "-c", f"echo {MARKER}; kill -9 $$", key=NAME)
    await yard.engine.start(launch)
    assert (await yard.ended(launch.attempt)).signal == 9
    await yard.engine.restart(launch, MASTER, 1)
    await yard.wait(lambda report: isinstance(report, Ended) and report.restarts == 1)
    assert yard.out(launch.attempt) == f"{MARKER}\n{MARKER}\n"
    assert yard.engine.log(launch.attempt, MASTER).marks()[-1].stdout == 2 * len(MARKER) + 2
    assert readable(yard) == []


async def test_a_log_that_grows_too_long_gives_up_its_middle(yard: Yard):
    program = "import os\nline = b'x' * 999 + b'\\n'\nfor n in range(12_000): os.write(1, line)\nprint('end')"
    attempt = await yard.python(program, key=NAME)
    await yard.ended(attempt)
    await yard.wait(lambda report: isinstance(report, Trimmed) and report.attempt == attempt)
    log = yard.engine.log(attempt, MASTER)
    hole = log.hole(0)
    assert hole is not None
    assert log.size(0) == 12_000_004
    assert log.read(0, hole[1], 1 << 30).endswith(b"x\nend\n")


async def test_without_the_key_it_is_refused_and_unreadable(yard: Yard, key_file: Path):
    attempt = await yard.python(SAY, key=NAME)
    await yard.ended(attempt)
    launch = yard.launch("true", key=NAME)
    key_file.unlink()
    with pytest.raises(KeyGone, match=NAME):
        yard.out(attempt)
    with pytest.raises(Refused, match=NAME):
        await yard.engine.start(launch)
    assert (await yard.run("true")).code == 0, "others go on"


@pytest.fixture
def no_ring_yard(place: Path) -> Yard:
    return Yard(place, sandbox="none")


async def test_a_keeper_that_was_there_before_the_key_ring(no_ring_yard: Yard, ring: KeyRing):
    async with no_ring_yard as yard:
        await yard.leave()
        yard._ring = ring
        await yard.come_back()
        end = await yard.run("true", key=NAME)
        assert end.code == 0 or "let running jobs end first" in end.message


def _pumps(yard: Yard) -> list[int]:
    """Processes that have a file of a replica open."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(link.startswith(str(yard.paths.attempts)) for link in links):
                found.append(int(entry.name))
    return found
