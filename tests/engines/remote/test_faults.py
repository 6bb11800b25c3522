"""What clusters, nodes and networks do wrong: each job runs once, ends as it ended, and loses no line."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.certificates import make_certificate
from tests.engines.conformance import PRINT_AND_WAIT, WORKER, starts, two
from tests.engines.remote.harness import MASTER, TIMEOUT, RemoteHarness
from turnout.engines import Refused
from turnout.engines.remote import EndKind, Gone, Phase, lifecycle, runner_calls
from turnout.job import Attempt, Cause, Ended, Mount, Pending, Replica, Saved, Size, Submitted


@pytest.fixture
async def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemoteHarness]:
    monkeypatch.setattr(lifecycle, "_CHECK_SECONDS", 0.3)
    monkeypatch.setattr(lifecycle, "_SETTLE_SECONDS", 1.0)
    monkeypatch.setattr(lifecycle, "_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(lifecycle, "_RETRY_SECONDS", 0.2)
    async with RemoteHarness(tmp_path) as one:
        yield one


def handle(remote: RemoteHarness, attempt: Attempt) -> str:
    return next(job.handle for job in remote.cluster.jobs.values() if job.gang.launch.attempt == attempt)


async def submitted(remote: RemoteHarness, attempt: Attempt) -> str:
    found: Any = await remote.wait(lambda r: isinstance(r, Submitted) and r.attempt == attempt)
    return found.engine_id


async def test_a_submit_whose_answer_is_lost_runs_once(remote: RemoteHarness):
    remote.cluster.loses_answers = 1
    attempt = await remote.python("print('once')")
    assert (await remote.ended(attempt)).code == 0
    assert len(remote.cluster.jobs) == 1
    assert await submitted(remote, attempt) == handle(remote, attempt)
    assert remote.output(attempt) == "once\n"


async def test_a_gang_that_the_cluster_starts_twice_runs_once(remote: RemoteHarness):
    remote.cluster.starts_twice = True
    attempt = await remote.start(roles=two("print('once')", "print('once')"))
    for name in (MASTER, WORKER):
        assert (await remote.ended(attempt, name)).code == 0
        assert remote.output(attempt, name) == "once\n"
    assert len(starts(remote, attempt)) == 2


async def test_a_cluster_that_is_away_delays_the_start_and_says_why(remote: RemoteHarness):
    remote.cluster.away = "slurmctld does not answer"
    attempt = await remote.python("print('late')")
    waiting: Any = await remote.wait(lambda r: isinstance(r, Pending) and r.attempt == attempt)
    assert waiting.message == "fake cannot be reached: slurmctld does not answer"
    async with asyncio.timeout(TIMEOUT):
        while "slurmctld" not in remote.engine.trouble():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    remote.cluster.away = ""
    assert (await remote.ended(attempt)).code == 0


async def test_what_the_cluster_refuses_ends_with_its_words(remote: RemoteHarness):
    remote.cluster.refuses_all = "the account has no money left"
    end = await remote.run("true")
    assert (end.cause, end.message) == (Cause.REFUSED, "the account has no money left")


async def test_the_reason_of_waiting_is_reported(remote: RemoteHarness):
    remote.cluster.full = True
    attempt = await remote.python("print('up')")
    waiting: Any = await remote.wait(lambda r: isinstance(r, Pending) and r.attempt == attempt)
    assert waiting.message == "waiting for resources"
    job = remote.cluster.jobs[await submitted(remote, attempt)]
    await remote.cluster.start(job)
    assert (await remote.ended(attempt)).code == 0


async def test_a_gang_that_waits_on_the_cluster_can_be_stopped(remote: RemoteHarness):
    remote.cluster.full = True
    attempt = await remote.python("print('never')")
    number = await submitted(remote, attempt)
    await remote.engine.stop(attempt, 10)
    assert (await remote.ended(attempt)).cause is Cause.STOPPED
    async with asyncio.timeout(TIMEOUT):
        while remote.cluster.jobs[number].phase is not Phase.ENDED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_list_that_is_empty_ends_nothing(remote: RemoteHarness):
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    remote.cluster.lists_nothing = True
    await asyncio.sleep(2)
    assert not any(isinstance(report, Ended) for report in remote.reports)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (EndKind.CANCELLED, Cause.STOPPED),
        (EndKind.PREEMPTED, Cause.PREEMPTED),
        (EndKind.TIME_LIMIT, Cause.TIME_LIMIT),
        (EndKind.NODE_LOST, Cause.LOST),
    ],
)
async def test_a_runner_that_the_cluster_ends(remote: RemoteHarness, kind: EndKind, cause: Cause):
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    remote.cluster.end(handle(remote, attempt), kind, "by hand, by root")
    end = await remote.ended(attempt)
    assert (end.cause, end.message) == (cause, "by hand, by root")
    assert remote.output(attempt) == "running\n"


async def test_a_runner_that_is_killed_is_lost(remote: RemoteHarness):
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    remote.cluster.end(handle(remote, attempt), EndKind.NODE_LOST, "node1 failed", signal.SIGKILL)
    end = await remote.ended(attempt)
    assert (end.cause, end.message) == (Cause.LOST, "node1 failed")


async def test_a_cluster_says_that_one_runner_of_several_is_gone(remote: RemoteHarness):
    attempt = await remote.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
    for name in (MASTER, WORKER):
        await remote.started(attempt, name)
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.processes[WORKER].kill()
    job.gone[str(WORKER)] = Gone(EndKind.NODE_LOST, "its node was lost")
    end = await remote.ended(attempt, WORKER)
    assert (end.cause, end.message) == (Cause.LOST, "its node was lost")
    assert not any(isinstance(one, Ended) and one.replica == MASTER for one in remote.reports)


async def test_one_runner_of_several_is_killed(remote: RemoteHarness, monkeypatch: pytest.MonkeyPatch):
    """The cluster goes on to say that the gang runs."""
    monkeypatch.setattr(lifecycle, "_LOST_SECONDS", 2.0)
    monkeypatch.setattr(runner_calls, "POLL_SECONDS", 0.5)
    attempt = await remote.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
    await remote.wait_for_output(attempt, "running\n", WORKER)
    await remote.started(attempt)
    remote.cluster.jobs[handle(remote, attempt)].processes[WORKER].kill()
    end = await remote.ended(attempt, WORKER)
    assert end.cause is Cause.LOST
    assert "while others of its job have" in end.message
    assert not any(isinstance(report, Ended) and report.replica == MASTER for report in remote.reports)


async def test_one_runner_of_several_is_gone_and_the_cluster_says_so(remote: RemoteHarness):
    attempt = await remote.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
    for name in (MASTER, WORKER):
        await remote.wait_for_output(attempt, "running\n", name)
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.processes[WORKER].kill()
    job.gone = dict.fromkeys((str(WORKER), str(MASTER)), Gone(EndKind.EXITED))  # it is wrong about the master
    end = await remote.ended(attempt, WORKER)
    assert (end.cause, end.message) == (Cause.LOST, "its runner ended without a report")
    assert not any(isinstance(report, Ended) and report.replica == MASTER for report in remote.reports)


@pytest.mark.slow
async def test_a_cluster_that_says_that_a_running_gang_has_ended(
    remote: RemoteHarness, monkeypatch: pytest.MonkeyPatch
):
    """As Slurm does if it starts a job twice: the second start ends at once. The runner of the first wins."""
    monkeypatch.setattr(lifecycle, "_SETTLE_SECONDS", 2.0)
    attempt = await remote.python("import time; print('up', flush=True); time.sleep(6); raise SystemExit(3)")
    await remote.wait_for_output(attempt, "up\n")
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.phase, job.end = Phase.ENDED, EndKind.EXITED
    assert (await remote.ended(attempt)).code == 3


@pytest.mark.parametrize("phase", [Phase.ENDED, Phase.PENDING])
async def test_a_cluster_that_loses_track_of_a_gang_and_ends_it(remote: RemoteHarness, phase: Phase):
    """After a crash of its controller, Slurm has a job in its queue again that runs, and kills it."""
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    job = remote.cluster.jobs[handle(remote, attempt)]
    remote.cluster.end(job.handle, EndKind.CANCELLED, "cancelled", signal.SIGKILL)
    await job.processes[MASTER].wait()
    job.phase, job.waited = phase, 60.0
    end = await remote.ended(attempt)
    assert (end.cause, end.message) == (Cause.LOST, lifecycle._LOST_TRACK)


async def test_a_handle_that_has_gone_to_another_gang(remote: RemoteHarness):
    """A controller that lost a job in a crash gives its number to the next one."""
    remote.cluster.full = True
    lost = await remote.python("print('lost')")
    number = await submitted(remote, lost)
    del remote.cluster.jobs[number]
    remote.cluster.full = False
    remote.cluster.next_handle = number
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    await remote.engine.stop(lost, 0)
    assert (await remote.ended(lost)).cause is Cause.STOPPED
    await asyncio.sleep(1)
    assert remote.cluster.jobs[number].phase is Phase.RUNNING
    assert not any(isinstance(report, Ended) and report.attempt == attempt for report in remote.reports)


async def test_a_gang_that_nobody_knows_any_more_is_lost(remote: RemoteHarness):
    """As after a service that was away for longer than Slurm remembers."""
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    number = handle(remote, attempt)
    remote.cluster.lists_nothing = True
    remote.cluster.forgets.add(number)
    remote.cluster.end(number, EndKind.EXITED, "", signal.SIGKILL)
    end = await remote.ended(attempt)
    assert end.cause is Cause.LOST
    assert f"does not know {number} any more" in end.message


async def test_a_runner_that_never_speaks_ends_with_its_last_words(remote: RemoteHarness):
    remote.cluster._python = "false"
    end = await remote.run("true")
    assert end.cause is Cause.REFUSED
    assert "its runner ended before it reached the service" in end.message


async def test_every_line_arrives_once_although_the_service_goes_away(remote: RemoteHarness):
    program = "import time\nfor i in range(300):\n    print(i, flush=True)\n    time.sleep(0.01)"
    attempt = await remote.python(program)
    for _ in range(3):
        await asyncio.sleep(0.4)
        await remote.disconnect()
        await asyncio.sleep(0.3)
        await remote.reconnect()
    assert (await remote.ended(attempt)).code == 0
    assert remote.output(attempt) == "".join(f"{i}\n" for i in range(300))


async def test_outputs_are_saved_and_inputs_fetched(remote: RemoteHarness):
    bucket = remote.paths.buckets / "data"
    await write(remote, "s3://data/in/a.txt", b"hello")
    await write(remote, "s3://data/in/sub/b.bin", bytes(3 << 20))
    mounts = (
        Mount("s3://data/in/", "/data/in", read_only=True),
        Mount("s3://data/out/", "/data/out", fetch=False, output=True),
    )
    program = (
        "import os, pathlib\n"
        "here, there = (pathlib.Path(os.environ[f'TURNOUT_MOUNT_{n}']) for n in (0, 1))\n"
        "there.joinpath('model').mkdir()\n"
        "there.joinpath('model/w.txt').write_text((here / 'a.txt').read_text() + ' world')\n"
        "print(len((here / 'sub/b.bin').read_bytes()), sorted(os.listdir(here)))"
    )
    attempt = await remote.python(program, mounts=mounts)
    assert (await remote.ended(attempt)).code == 0, remote.output(attempt, stream=1)
    assert remote.output(attempt) == f"{3 << 20} ['a.txt', 'sub']\n"
    await remote.engine.save(attempt)
    saved: Any = await remote.wait(lambda r: isinstance(r, Saved) and r.attempt == attempt)
    assert (saved.trouble, saved.message) == ("", "1 file (11 bytes) went to s3://data/out/")
    assert (bucket / "out/model/w.txt").read_text() == "hello world"


async def test_a_program_finds_its_node_by_name(remote: RemoteHarness):
    """As Gloo and MPI do, also in a sandbox, which has an /etc/hosts of its own."""
    attempt = await remote.python("import socket; print(socket.gethostbyname(socket.gethostname()))")
    assert (await remote.ended(attempt)).code == 0, remote.output(attempt, stream=1)
    assert remote.output(attempt) == "127.0.0.1\n"


async def test_a_runner_that_is_killed_before_it_saves(remote: RemoteHarness):
    mounts = (Mount("s3://data/out/", "/out", fetch=False, output=True),)
    attempt = await remote.python("print('done')", mounts=mounts)
    assert (await remote.ended(attempt)).code == 0
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.processes[MASTER].kill()
    await job.processes[MASTER].wait()
    await remote.engine.save(attempt)
    saved: Any = await remote.wait(lambda r: isinstance(r, Saved) and r.attempt == attempt)
    assert saved.trouble == "the runner of master-0 is gone, and its files with it"


async def test_what_a_runner_has_saved_stays_saved_when_the_service_restarts(remote: RemoteHarness):
    """A runner goes once its outputs are stored, and others of its gang may still be busy with theirs."""
    mounts = (Mount("s3://data/out/", "/out", fetch=False, output=True),)
    program = "import os, pathlib; pathlib.Path(os.environ['TURNOUT_MOUNT_0'], 'model').write_text('whole')"
    attempt = await remote.python(program, mounts=mounts)
    assert (await remote.ended(attempt)).code == 0
    runner = remote.cluster.jobs[handle(remote, attempt)].processes[MASTER]
    for _ in range(2):
        await remote.engine.save(attempt)
        saved: Any = await remote.wait(lambda r: isinstance(r, Saved) and r.attempt == attempt)
        assert (saved.trouble, saved.message) == ("", "1 file (5 bytes) went to s3://data/out/")
        if runner.returncode is None:
            runner.kill()
            await runner.wait()
        await remote.disconnect()
        await remote.reconnect()


async def test_a_missing_input_is_named(remote: RemoteHarness):
    mount = Mount("s3://nothing/here/", "/data", read_only=True)
    end = await remote.run("true", mounts=(mount,))
    assert end.cause is Cause.STAGING
    assert "s3://nothing/here/" in end.message


async def test_what_a_node_cannot_reach_is_refused(remote: RemoteHarness):
    for source in ("file:///home/me", "nfs://server/share", "cephfs://server/share"):
        with pytest.raises(Refused, match=source):
            await remote.engine.start(remote.launch("true", mounts=(Mount(source, "/data"),)))


async def test_the_page_of_a_program(remote: RemoteHarness):
    program = (
        "import http.server, os\n"
        "port = int(os.environ['AIP_DASHBOARD_PORT'])\n"
        "server = http.server.HTTPServer(('', port), http.server.SimpleHTTPRequestHandler)\n"
        "print('serving', flush=True)\n"
        "server.serve_forever()"
    )
    launch = remote.launch("python", "-c", program)
    launch = msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, program_page=True))
    await remote.engine.start(launch)
    await remote.wait_for_output(launch.attempt, "serving")
    replica = Replica(*launch.attempt, *MASTER)
    connection = await remote.engine.program_page(launch.attempt, replica)
    assert connection is not None
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, b"GET / HTTP/1.0\r\n\r\n")
    assert (await loop.sock_recv(connection, 100)).startswith(b"HTTP/1.0 200")
    connection.close()


async def test_a_shell_beside_a_program(remote: RemoteHarness):
    launch = remote.launch("python", "-c", PRINT_AND_WAIT)
    launch = msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, shell=True))
    await remote.engine.start(launch)
    attempt = launch.attempt
    await remote.wait_for_output(attempt, "running\n")
    terminal = await remote.engine.shell(attempt, MASTER, Size(100, 30))
    await terminal.write(b"stty size; exit 5\n")
    said = b""
    async with asyncio.timeout(TIMEOUT):
        while data := await terminal.read():
            said += data
    assert b"30 100" in said
    assert await terminal.code() == 5


async def test_orders_of_the_next_service_are_not_taken_for_those_of_the_last(remote: RemoteHarness):
    launch = remote.launch("python", "-c", PRINT_AND_WAIT)
    launch = msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, shell=True))
    await remote.engine.start(launch)
    await remote.wait_for_output(launch.attempt, "running\n")
    terminal = await remote.engine.shell(launch.attempt, MASTER, Size(100, 30))
    await terminal.write(b"exit\n")
    async with asyncio.timeout(TIMEOUT):
        while await terminal.read():
            pass
    await remote.disconnect()
    await remote.reconnect()
    await remote.engine.stop(launch.attempt, 1)
    assert (await remote.ended(launch.attempt)).cause is Cause.STOPPED


async def test_over_tls_with_a_certificate_that_nobody_else_trusts(tmp_path: Path):
    (tmp_path / "tls").mkdir()
    async with RemoteHarness(tmp_path, certificate=make_certificate(tmp_path / "tls")) as remote:
        attempt = await remote.python("print('encrypted')")
        assert (await remote.ended(attempt)).code == 0
        assert remote.output(attempt) == "encrypted\n"


async def write(remote: RemoteHarness, url: str, data: bytes) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield data

    await remote.engine.calls.transfers._objects.write(url, "default", body())


async def test_one_runner_that_is_gone_ends_its_replica_only(remote: RemoteHarness):
    attempt = await remote.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
    for name in (MASTER, WORKER):
        await remote.wait_for_output(attempt, "running\n", name)
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.processes[WORKER].kill()
    job.gone = {str(WORKER): Gone(EndKind.NODE_LOST, "node 7 is lost")}
    end = await remote.ended(attempt, WORKER)
    assert (end.cause, end.message) == (Cause.LOST, "node 7 is lost")
    assert not any(isinstance(one, Ended) and one.replica == MASTER for one in remote.reports)


async def test_a_runner_that_the_cluster_ends_has_the_reason_of_its_own_member(remote: RemoteHarness):
    attempt = await remote.start(roles=two(PRINT_AND_WAIT, PRINT_AND_WAIT))
    await remote.wait_for_output(attempt, "running\n", WORKER)
    job = remote.cluster.jobs[handle(remote, attempt)]
    job.gone = {str(WORKER): Gone(EndKind.PREEMPTED, "somebody else is first")}
    job.processes[WORKER].terminate()
    end = await remote.ended(attempt, WORKER)
    assert (end.cause, end.message) == (Cause.PREEMPTED, "somebody else is first")


async def test_runners_wait_until_their_gang_has_its_place(remote: RemoteHarness):
    remote.cluster.full = True
    attempt = await remote.python("print('placed')")
    job = remote.cluster.jobs[await submitted(remote, attempt)]
    remote.cluster.unplaced.add(job.handle)
    await remote.cluster.start(job)
    await asyncio.sleep(1)
    assert starts(remote, attempt) == set()
    remote.cluster.unplaced.clear()
    assert (await remote.ended(attempt)).code == 0


async def test_the_cluster_forgets_what_has_ended(remote: RemoteHarness):
    attempt = await remote.start("true")
    await remote.ended(attempt)
    job = handle(remote, attempt)
    await remote.engine.forget(attempt)
    async with asyncio.timeout(TIMEOUT):
        while remote.cluster.forgotten != [job]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_list_says_which_gangs_have_ended(remote: RemoteHarness, monkeypatch: pytest.MonkeyPatch):
    """No question for each of them: a busy cluster would get one for each job."""
    monkeypatch.setattr(lifecycle, "_RETRY_SECONDS", 60.0)
    attempt = await remote.start("true")
    await remote.ended(attempt)
    await remote.engine.forget(attempt)
    async with asyncio.timeout(TIMEOUT):
        while not remote.cluster.forgotten:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert remote.cluster.looked_at == []


async def test_what_a_killed_service_left_on_its_cluster_is_removed(remote: RemoteHarness):
    attempt = await remote.python(PRINT_AND_WAIT)
    await remote.wait_for_output(attempt, "running\n")
    job = remote.cluster.jobs[handle(remote, attempt)]
    await remote.disconnect()
    for record in (remote.paths.clusters / "fake").rglob(f"*{attempt}*"):
        record.unlink()
    remote.cluster.is_sole_user = True
    await remote.reconnect()
    async with asyncio.timeout(TIMEOUT):
        while job.handle not in remote.cluster.forgotten:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert job.end is EndKind.CANCELLED
