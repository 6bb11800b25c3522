"""What every engine must do. The tests of an engine subclass `EngineConformance` with a fixture `harness`.

    class TestSlurm(EngineConformance):
        @pytest.fixture
        async def harness(self, ...) -> AsyncIterator[Harness]: ...

The suite uses nothing but the protocol `turnout.engines.Engine`.
"""

import asyncio
import json
from pathlib import Path

import pytest

from tests.engines.harness import MASTER, TIMEOUT, Harness
from turnout.job import Attempt, Cause, Ended, Policy, Program, ReplicaName, Resources, Role, Started, Synced
from turnout.job.resources import GIB

GREET_PEERS = (Path(__file__).parent / "greet_peers.py").read_text()
PRINT_AND_WAIT = "import signal; print('running', flush=True); signal.pause()"
IGNORE_TERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {PRINT_AND_WAIT}"
OBEY_TERM = f"""
import signal, sys
def bye(*_):
    print("bye", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, bye)
{PRINT_AND_WAIT}
"""
COUNT_PROCESSES = """
import os, sys
words, count = " ".join(sys.argv[1:]).encode(), 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        count += words in open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        pass
print(count)
"""
WORKER = ReplicaName("worker", 0)


def two(master: str, worker: str) -> tuple[Role, ...]:
    return (
        Role("master", Program(("python", "-c", master)), leads=True, task_type="chief"),
        Role("worker", Program(("python", "-c", worker))),
    )


def starts(harness: Harness, attempt: Attempt) -> set[tuple[str, int]]:
    """Each replica that has started, and its process. Reports may be repeated."""
    found = (one for one in harness.reports if isinstance(one, Started) and one.attempt == attempt)
    return {(str(one.replica), one.pid) for one in found}


def held(harness: Harness) -> frozenset[Attempt]:
    return next(one.held for one in reversed(harness.reports) if isinstance(one, Synced))


class EngineConformance:
    @pytest.mark.parametrize("code", [0, 1, 77, 255])
    async def test_the_exit_code_is_reported(self, harness: Harness, code: int):
        end = await harness.run("sh", "-c", f"exit {code}")
        assert (end.cause, end.shell_code) == (Cause.EXIT, code)

    async def test_a_signal_is_reported(self, harness: Harness):
        end = await harness.run("sh", "-c", "kill -9 $$")
        assert (end.cause, end.shell_code) == (Cause.EXIT, 128 + 9)

    async def test_a_program_that_does_not_exist(self, harness: Harness):
        end = await harness.run("no-such-program")
        assert end.cause is Cause.NOT_FOUND
        assert "no-such-program" in end.message

    async def test_started_comes_before_ended_and_says_where(self, harness: Harness):
        attempt = await harness.start("true")
        await harness.ended(attempt)
        mine = [one for one in harness.reports if isinstance(one, Started | Ended) and one.attempt == attempt]
        assert [type(one) for one in mine] == [Started, Ended]
        assert mine[0].at <= mine[1].at
        assert (await harness.started(attempt)).address

    async def test_every_byte_of_both_streams_is_in_the_log_once(self, harness: Harness):
        program = (
            "import os, sys\n"
            "for i in range(5000): os.write(1, b'line %d\\n' % i)\n"
            "os.write(2, bytes(range(256)))\n"
            "os.write(1, b'no newline at the end')"
        )
        attempt = await harness.python(program)
        await harness.ended(attempt)
        log = harness.engine.log(attempt, MASTER)
        expected = b"".join(b"line %d\n" % i for i in range(5000)) + b"no newline at the end"
        assert log.read(0, 0, log.size(0)) == expected
        assert log.read(1, 0, log.size(1)) == bytes(range(256))
        last = log.marks()[-1]
        assert (last.stdout, last.stderr) == (len(expected), 256)

    async def test_the_log_can_be_followed_while_it_runs(self, harness: Harness):
        attempt = await harness.python(PRINT_AND_WAIT)
        assert await harness.wait_for_output(attempt, "running\n") == "running\n"

    async def test_members_of_a_gang_find_each_other(self, harness: Harness):
        command = Program(("python", "-c", GREET_PEERS))
        roles = (
            Role("master", command, leads=True, task_type="chief"),
            Role("ps", command),
            Role("worker", command, replicas=2),
        )
        attempt = await harness.start(roles=roles)
        outputs = []
        for name in ("master-0", "ps-0", "worker-0", "worker-1"):
            end = await harness.ended(attempt, ReplicaName.parse(name))
            assert end.code == 0, harness.output(attempt, end.replica, stream=1)
            outputs.append(harness.output(attempt, end.replica))
        assert outputs == [
            "chief 0 was greeted by ps 0, worker 0, worker 1\n",
            "ps 0 was greeted by chief 0, worker 0, worker 1\n",
            "worker 0 was greeted by chief 0, ps 0, worker 1\n",
            "worker 1 was greeted by chief 0, ps 0, worker 0\n",
        ]

    async def test_ranks_and_the_lead_are_the_same_for_all(self, harness: Harness):
        say = (
            "import json, os\n"
            "names = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')\n"
            "print(json.dumps([os.environ[name] for name in names]))"
        )
        attempt = await harness.start(roles=two(say, say))
        found = []
        for name in (MASTER, WORKER):
            assert (await harness.ended(attempt, name)).code == 0
            found.append(json.loads(harness.output(attempt, name)))
        assert [one[:2] for one in found] == [["0", "2"], ["1", "2"]]
        assert found[0][2:] == found[1][2:]
        assert {name for name, _ in starts(harness, attempt)} == {"master-0", "worker-0"}

    async def test_variables_and_arguments_arrive_as_they_are(self, harness: Harness):
        odd = "a b\t'c' \"d\" $HOME `x` \\ 训练 *"
        program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
        attempt = await harness.python(program, odd, "", env={"ODD": odd})
        await harness.ended(attempt)
        assert json.loads(harness.output(attempt)) == [[odd, ""], odd]

    async def test_a_stop_lets_the_program_finish_within_the_grace(self, harness: Harness):
        attempt = await harness.python(OBEY_TERM)
        await harness.wait_for_output(attempt, "running\n")
        await harness.engine.stop(attempt, 20)
        end = await harness.ended(attempt)
        assert end.cause is Cause.STOPPED
        assert harness.output(attempt) == "running\nbye\n"

    async def test_a_program_that_ignores_the_stop_is_killed(self, harness: Harness):
        attempt = await harness.python(IGNORE_TERM)
        await harness.wait_for_output(attempt, "running\n")
        await harness.engine.stop(attempt, 0.2)
        assert (await harness.ended(attempt)).cause is Cause.STOPPED

    async def test_one_replica_can_be_stopped_while_the_others_go_on(self, harness: Harness):
        attempt = await harness.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
        await harness.wait_for_output(attempt, "running\n")
        await harness.started(attempt, WORKER)
        await harness.engine.stop(attempt, 0.2, (WORKER,))
        assert (await harness.ended(attempt, WORKER)).cause is Cause.STOPPED
        assert not any(isinstance(one, Ended) and one.replica == MASTER for one in harness.reports)
        await harness.engine.stop(attempt, 0)
        assert (await harness.ended(attempt)).cause is Cause.STOPPED

    async def test_a_stop_may_be_repeated_and_come_too_late(self, harness: Harness):
        attempt = await harness.python(PRINT_AND_WAIT)
        await harness.wait_for_output(attempt, "running\n")
        for _ in range(3):
            await harness.engine.stop(attempt, 0.1)
        await harness.ended(attempt)
        await harness.engine.stop(attempt, 0.1)
        await asyncio.sleep(0.2)
        assert sum(isinstance(one, Ended) and one.attempt == attempt for one in harness.reports) == 1

    async def test_a_stop_that_overtakes_the_start_wins(self, harness: Harness):
        launch = harness.launch("python", "-c", PRINT_AND_WAIT)
        await harness.engine.stop(launch.attempt, 0)
        await harness.engine.start(launch)
        end = await harness.ended(launch.attempt)
        assert end.cause is Cause.STOPPED
        assert harness.output(launch.attempt) == ""

    async def test_a_start_that_is_repeated_starts_once(self, harness: Harness):
        launch = harness.launch("python", "-c", "print('once')")
        for _ in range(3):
            await harness.engine.start(launch)
        assert (await harness.ended(launch.attempt)).code == 0
        await harness.engine.start(launch)
        await asyncio.sleep(0.2)
        assert harness.output(launch.attempt) == "once\n"
        assert len(starts(harness, launch.attempt)) == 1

    async def test_a_program_runs_on_while_the_service_is_away(self, harness: Harness):
        attempt = await harness.python(OBEY_TERM)
        await harness.wait_for_output(attempt, "running\n")
        await harness.disconnect()
        await harness.reconnect()
        assert attempt in held(harness)
        assert len(starts(harness, attempt)) == 1
        await harness.engine.stop(attempt, 20)
        assert (await harness.ended(attempt)).cause is Cause.STOPPED
        assert harness.output(attempt) == "running\nbye\n"

    async def test_what_ended_while_the_service_was_away_is_reported_with_its_code_and_log(
        self, harness: Harness
    ):
        attempt = await harness.python("import time; time.sleep(0.5); print('done'); raise SystemExit(5)")
        await harness.started(attempt)
        await harness.disconnect()
        await asyncio.sleep(1)
        await harness.reconnect()
        assert (await harness.ended(attempt)).shell_code == 5
        assert harness.output(attempt) == "done\n"

    async def test_an_attempt_that_is_forgotten_is_not_held_any_more(self, harness: Harness):
        attempt = await harness.start("true")
        await harness.ended(attempt)
        await harness.engine.forget(attempt)
        await harness.disconnect()
        await harness.reconnect()
        assert attempt not in held(harness)
        assert starts(harness, attempt) == set()

    async def test_the_log_stays_until_it_is_removed(self, harness: Harness):
        attempt = await harness.start("echo", "hello")
        await harness.ended(attempt)
        await harness.engine.forget(attempt)
        assert harness.output(attempt) == "hello\n"
        assert attempt in await harness.engine.attempts_on_disk()
        await harness.engine.remove([attempt])
        async with asyncio.timeout(TIMEOUT):
            while harness.output(attempt):  # the engine may take its time  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert attempt not in await harness.engine.attempts_on_disk()

    async def test_the_time_limit_is_enforced(self, harness: Harness):
        end = await harness.run("sleep", "600", policy=Policy(time_limit=0.5, grace=0.1))
        assert end.cause is Cause.TIME_LIMIT

    async def test_the_time_limit_is_enforced_while_the_service_is_away(self, harness: Harness):
        attempt = await harness.start("sleep", "600", policy=Policy(time_limit=1, grace=0.1))
        await harness.started(attempt)
        await harness.disconnect()
        await asyncio.sleep(1.5)
        await harness.reconnect()
        assert (await harness.ended(attempt)).cause is Cause.TIME_LIMIT

    async def test_a_program_that_needs_too_much_memory_is_named(self, harness: Harness):
        attempt = await harness.python(
            "x = bytearray(3 << 30); x[::4096] = b'x' * len(x[::4096])", resources=Resources.of(1, GIB)
        )
        end = await harness.ended(attempt)
        assert end.cause is Cause.OUT_OF_MEMORY or "MemoryError" in harness.output(attempt, stream=1)

    async def test_nothing_of_a_replica_outlives_it(self, harness: Harness):
        program = (
            "import os, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    time.sleep(600)\n"
            "print('parent ends', flush=True)"
        )
        assert (await harness.run("python", "-c", program)).code == 0
        attempt = await harness.python(COUNT_PROCESSES, "parent", "ends")
        await harness.ended(attempt)
        assert harness.output(attempt) == "0\n", harness.output(attempt, stream=1)
