"""The private network of a job: what it reaches, what it does not, and that it lives as long as the job."""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.engines.local.harness import IN_IMAGE, MASTER, TIMEOUT, EngineHarness, kinds, running_processes
from tests.engines.local.test_shell import run_command, shell
from turnout import config
from turnout.engines.local.machine import network
from turnout.errors import Misconfigured
from turnout.job import Attempt, Mount, Program, ReplicaName, Role
from turnout.job.names import host_name

LISTEN = """
import socket, sys
open_port = socket.create_server((sys.argv[1] if sys.argv[1:] else "127.0.0.1", 0))
port = open_port.getsockname()[1]
hidden = socket.socket(socket.AF_UNIX)
hidden.bind(b"\\0turnout-%d" % port)
hidden.listen()
print("port", port, flush=True)
while True:
    there, _ = open_port.accept(); there.sendall(b"hello"); there.close()
"""

CONNECT = """
import json, socket, sys
found = {}
for there in json.loads(sys.argv[1]):
    try:
        with socket.create_connection(tuple(there), 5) as line:
            line.settimeout(5)
            found[f"{there[0]}:{there[1]}"] = line.recv(5).decode()
    except OSError as error:
        found[f"{there[0]}:{there[1]}"] = type(error).__name__
for name in sys.argv[2:]:
    try:
        socket.socket(socket.AF_UNIX).connect(b"\\0" + name.encode()); found[name] = "reached"
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps(found), flush=True)
"""


@pytest.fixture(params=["slirp4netns", "pasta"])
async def private(
    base_dir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EngineHarness]:
    """With each of the programs that connect a network to the outside."""
    monkeypatch.setattr(network, "_FORWARDERS", {request.param: request.param})
    async with EngineHarness(base_dir, sandbox="bubblewrap", network="private") as harness:
        yield harness


@pytest.fixture(params=["slirp4netns", "pasta", IN_IMAGE])
async def confined(
    base_dir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EngineHarness]:
    """The same, and with jobs in an image."""
    kind = IN_IMAGE if request.param == IN_IMAGE else "bubblewrap"
    if kind != IN_IMAGE:
        monkeypatch.setattr(network, "_FORWARDERS", {request.param: request.param})
    async with EngineHarness(base_dir, **kinds(kind), network="private") as harness:
        yield harness


@pytest.fixture
def on_loopback() -> Iterator[int]:
    """The port of a server on the machine's own loopback."""
    yield from _echo_server("127.0.0.1")


@pytest.fixture
def outside_server() -> Iterator[tuple[str, int]]:
    """An address of this machine that is not loopback. To a job it is like that of another machine."""
    address = _own_address()
    if address.startswith("127."):
        pytest.skip("this machine has no other address than loopback")
    for port in _echo_server(address):
        yield address, port


async def test_jobs_reach_neither_each_other_nor_the_machine(
    confined: EngineHarness, on_loopback: int
) -> None:
    other = await confined.python(LISTEN)
    port = int((await confined.wait_for_output(other, "\n")).split()[1])
    address = (await confined.started(other)).address or ""
    mine = socket.socket(socket.AF_UNIX)
    mine.bind(b"\0turnout-machine-%d" % os.getpid())
    mine.listen()
    hidden = (f"turnout-{port}", f"turnout-machine-{os.getpid()}")
    subnet = confined.engine._machine.network.subnet.removesuffix("0/24")
    everywhere = ["127.0.0.1", address, "localhost", _own_address(), *(f"{subnet}{n}" for n in (2, 3, 4))]
    wanted = [(host, number) for host in everywhere for number in (port, on_loopback)]
    found = await _connect(confined, wanted, *hidden)
    mine.close()
    # pasta does not reject connections to a port on which nobody listens.
    assert set(found.values()) <= {"ConnectionRefusedError", "PermissionError", "OSError", "TimeoutError"}, (
        found
    )


async def test_members_of_a_job_reach_each_other_by_name(private: EngineHarness) -> None:
    serve = Program(("python", "-c", LISTEN.replace(", 0))", ", 5000))"), "0.0.0.0"))
    meet = "import socket, sys, time\n" + _RETRY
    meet += "print(retry(lambda: socket.create_connection((sys.argv[1], 5000)).recv(5)))"
    launch = private.launch()
    host = host_name(launch.attempt.job + 1, launch.name, MASTER)
    roles = (
        Role("master", serve, leads=True, task_type="chief"),
        Role("worker", Program(("python", "-c", meet, host)), replicas=2, task_type="worker"),
    )
    launch = private.launch(roles=roles)
    await private.engine.start(launch)
    for number in range(2):
        name = ReplicaName("worker", number)
        assert "hello" in await private.wait_for_output(launch.attempt, "hello", name)


async def test_two_jobs_may_listen_on_the_same_port(private: EngineHarness) -> None:
    programs = [await private.python(LISTEN.replace(", 0))", ", 5000))")) for _ in range(2)]
    for attempt in programs:
        await private.wait_for_output(attempt, "port 5000")


async def test_ipv6_loopback_works(private: EngineHarness) -> None:
    program = "import socket; s = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
    program += "socket.create_connection(s.getsockname()[:2]); print('ok')"
    end = await private.ended(await private.python(program))
    assert private.output(end.attempt) == "ok\n"


async def test_a_job_reaches_the_outside(private: EngineHarness, outside_server: tuple[str, int]) -> None:
    key = f"{outside_server[0]}:{outside_server[1]}"
    assert await _connect(private, [outside_server]) == {key: "hello"}


SEND_QUERY = """
import socket, struct, sys
servers = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")]
question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"\\x07example\\x03org\\x00" + struct.pack(">2H", 1, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.settimeout(5)
    for _ in range(4):
        line.sendto(question, (servers[0], 53))
        try:
            print("answered" if line.recv(512)[:2] == question[:2] else "what?", flush=True)
            break
        except OSError as error:
            print(type(error).__name__, flush=True)
"""


async def test_names_are_resolved(private: EngineHarness) -> None:
    """By the machine's own name server, if it answers."""
    machine = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SEND_QUERY, stdout=asyncio.subprocess.PIPE
    )
    if b"answered" not in (await machine.communicate())[0]:
        pytest.skip("this machine has no name server that answers")
    end = await private.ended(await private.python(SEND_QUERY))
    assert "answered" in private.output(end.attempt)


async def test_the_forwarder_ends_with_the_job(
    private: EngineHarness, outside_server: tuple[str, int]
) -> None:
    attempt = await private.python(CONNECT + "import time; time.sleep(1000)", json.dumps([outside_server]))
    await private.wait_for_output(attempt, "hello")
    assert len(_forwarders(private, attempt)) == 1
    await private.engine.stop(attempt, 0)
    await private.ended(attempt)
    await _forwarders_ended(private, attempt)


async def test_the_network_outlives_service_and_supervisor(
    private: EngineHarness, outside_server: tuple[str, int]
) -> None:
    again = CONNECT.replace("found = {}", "input(); found = {}").replace(
        "input()", "sys.stdin = open('/workspace/go'); found = {}; input()"
    )
    program = "import os; os.mkfifo('/workspace/go')\nprint('up', flush=True)\n" + again
    fresh = await private.python(program, json.dumps([outside_server]))
    used = await private.python(CONNECT + program, json.dumps([outside_server]))
    for attempt in (fresh, used):
        await private.wait_for_output(attempt, "up")
    before = _forwarders(private, used)
    await private.disconnect()
    await private.reconnect()
    await private.kill_supervisor()
    assert _forwarders(private, used) == before
    assert not _forwarders(private, fresh)
    for attempt in (fresh, used):
        (private.paths.workspace(attempt, MASTER) / "go").write_text("\n")
        end = await private.ended(attempt)
        assert private.output(attempt).splitlines()[-1] == json.dumps(
            {f"{outside_server[0]}:{outside_server[1]}": "hello"}
        ), end
    await _forwarders_ended(private, fresh)
    await _forwarders_ended(private, used)


async def test_a_killed_forwarder_is_started_again(
    private: EngineHarness, outside_server: tuple[str, int]
) -> None:
    retry = (
        "import time\n"
        + _RETRY
        + "retry(lambda: socket.create_connection(tuple(json.loads(sys.argv[1])[0]), 5))"
    )
    program = CONNECT + "input()\n" + retry + "\nprint('again', flush=True)"
    program = program.replace(
        "input()",
        "import os; os.mkfifo('/workspace/go'); print('up', flush=True); open('/workspace/go').read()",
    )
    attempt = await private.python(program, json.dumps([outside_server]))
    await private.wait_for_output(attempt, "up")
    for pid in _forwarders(private, attempt):
        os.kill(pid, signal.SIGKILL)
    (private.paths.workspace(attempt, MASTER) / "go").write_text("\n")
    await private.wait_for_output(attempt, "again")


async def test_a_job_that_ended_without_a_supervisor_leaves_no_process(
    private: EngineHarness, outside_server: tuple[str, int]
) -> None:
    attempt = await private.python(CONNECT + "import time; time.sleep(1000)", json.dumps([outside_server]))
    await private.wait_for_output(attempt, "hello")
    pid = (await private.started(attempt)).pid
    os.kill(private.supervisor, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    await private.kill_supervisor()
    await private.ended(attempt)
    await _forwarders_ended(private, attempt)


async def test_no_namespace_is_used_twice(private: EngineHarness) -> None:
    cookie = "import socket; print(socket.socket().getsockopt(socket.SOL_SOCKET, 71, 8).hex())"
    seen: set[str] = set()
    for _ in range(3):
        attempts = [await private.python(cookie) for _ in range(15)]
        seen |= {private.output((await private.ended(attempt)).attempt) for attempt in attempts}
    assert len(seen) == 45


async def test_a_job_has_no_rights_on_its_network(private: EngineHarness) -> None:
    """Not in a user namespace that it made itself either, if it can make one."""
    commands = ("ip link set lo down", "ip rule flush", "ip route add 10.9.9.0/24 dev lo", "unshare -rn true")
    tried = "; ".join(f"({one}) 2>/dev/null && echo DONE {one}" for one in commands[:3])
    end = await private.run(
        "sh", "-c", f"{tried}; unshare -r sh -c 'ip link set lo down' 2>/dev/null && echo DONE; id -u"
    )
    assert "DONE" not in private.output(end.attempt)


async def test_mounts_work_in_a_private_network(confined: EngineHarness) -> None:
    there = confined.base_dir / "shared"
    there.mkdir()
    there.chmod(0o777)
    mount = Mount(f"file://{there}", "/data")
    end = await confined.run(
        "sh", "-c", "echo here > /data/out; cat /proc/net/dev | grep -c tap0", mounts=(mount,)
    )
    assert (end.code, confined.output(end.attempt)) == (0, "1\n")
    assert (there / "out").read_text() == "here\n"


async def test_shells_are_in_the_private_network(private: EngineHarness) -> None:
    attempt = await private.start("sh", "-c", "echo up; exec sleep 1000")
    await private.wait_for_output(attempt, "up")
    pid = (await private.started(attempt)).pid
    async with shell(private, attempt) as terminal:
        assert await run_command(terminal, "readlink /proc/self/ns/net") == [
            os.readlink(f"/proc/{pid}/ns/net")
        ]


async def test_the_service_can_open_a_socket_in_a_jobs_network(private: EngineHarness) -> None:
    """The service listens in the job's network, where only that job can connect."""
    program = (
        "import socket, time\n"
        + _RETRY
        + "print(retry(lambda: socket.create_connection(('127.0.0.1', 7777))).recv(9))"
    )
    attempt = await private.python(program)
    await private.started(attempt)
    listener = await private.engine._sockets.open(attempt, socket.AF_INET)
    with listener:
        listener.bind(("127.0.0.1", 7777))
        listener.listen()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT):
            there, _ = await loop.sock_accept(listener)
            with there:
                await loop.sock_sendall(there, b"from here")
    await private.wait_for_output(attempt, "from here")


async def test_reach_gives_access_to_one_address(base_dir: Path, on_loopback: int) -> None:
    reach = [f"127.0.0.1:{on_loopback}", f"169.254.169.254:{on_loopback}"]
    async with EngineHarness(base_dir, sandbox="bubblewrap", network="private", reach=reach) as harness:
        assert (await _connect(harness, [("127.0.0.1", on_loopback)]))[reach[0]] == "hello"
        attempt = await harness.python(CONNECT + "input()", json.dumps([("127.0.0.1", on_loopback)]))
        await harness.wait_for_output(attempt, "hello")
        await harness.kill_supervisor()
        assert (await _connect(harness, [("127.0.0.1", on_loopback)]))[reach[0]] == "hello"


async def test_network_none_has_no_outside(
    base_dir: Path, on_loopback: int, outside_server: tuple[str, int]
) -> None:
    async with EngineHarness(base_dir, sandbox="bubblewrap", network="none") as harness:
        found = await _connect(harness, [("127.0.0.1", on_loopback), outside_server])
        assert set(found.values()) == {"ConnectionRefusedError", "OSError"}, found


async def test_network_host_is_the_machines_network(base_dir: Path, on_loopback: int) -> None:
    async with EngineHarness(base_dir, sandbox="bubblewrap", network="host") as harness:
        assert list((await _connect(harness, [("127.0.0.1", on_loopback)])).values()) == ["hello"]


async def test_a_network_that_the_settings_require_must_work(
    base_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = base_dir / "bin"
    tools.mkdir()
    for name in ("bwrap", "unshare"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(Misconfigured, match="neither of the packages slirp4netns and passt is installed"):
        async with EngineHarness(base_dir, sandbox="bubblewrap", network="private"):
            pass
    with pytest.raises(Misconfigured, match="bubblewrap"):
        async with EngineHarness(base_dir, sandbox="none", network="private"):
            pass


async def test_auto_warns_if_jobs_share_the_network(
    base_dir: Path, caplog: pytest.LogCaptureFixture, on_loopback: int
) -> None:
    async with EngineHarness(base_dir, sandbox="none", network="auto") as harness:
        assert list((await _connect(harness, [("127.0.0.1", on_loopback)])).values()) == ["hello"]
    assert "NO PRIVATE NETWORK" in caplog.text


_RETRY = """
def retry(what):
    until = time.monotonic() + 20
    while True:
        try:
            return what()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
"""


async def _connect(harness: EngineHarness, wanted: list[tuple[str, int]], *hidden: str) -> dict[str, str]:
    """What a new job prints in that network."""
    attempt = await harness.python(CONNECT, json.dumps(wanted), *hidden)
    end = await harness.ended(attempt)
    assert end.code == 0, harness.output(attempt, stream=1)
    return json.loads(harness.output(attempt))


def _forwarders(harness: EngineHarness, attempt: Attempt) -> list[int]:
    return running_processes(f"turnout-network:{harness.paths.supervisor}:outside:{attempt}:")


async def _forwarders_ended(harness: EngineHarness, attempt: Attempt) -> None:
    """The forwarder ends soon after its job."""
    for pid in _forwarders(harness, attempt):
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                await asyncio.to_thread(select.select, [pidfd], [], [], TIMEOUT)
            finally:
                os.close(pidfd)
    assert not _forwarders(harness, attempt)


def _echo_server(address: str) -> Iterator[int]:
    with socket.create_server((address, 0)) as server:

        def answer() -> None:
            while True:
                try:
                    there, _ = server.accept()
                except OSError:
                    return
                with there:
                    there.sendall(b"hello")

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _own_address() -> str:
    """The address of this machine for others. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


def test_what_turnout_doctor_says_of_a_device_that_only_root_may_open(
    base_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    if os.geteuid() != 0:
        pytest.skip("only root makes a device for the supervisor")
    device = base_dir / "tun"
    os.mknod(device, stat.S_IFCHR | 0o600, os.stat(network._TUN).st_rdev)
    monkeypatch.setattr(network, "_TUN", device)
    settings = config.load(flags={"server": {"data": str(base_dir / "new" / "data")}})
    assert network.probe(settings).trouble == ""
    assert sorted(path.name for path in base_dir.iterdir()) == ["tun"]
