"""The process beside the service: it comes back when it dies, and goes when the service goes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.cloud.aiplatform_v1 import GetCustomJobRequest

from tests.doors.grpc.conftest import start
from tests.running import free_port
from turnout.doors.grpc import Orders, beside, check, process
from turnout.errors import Misconfigured

GET = "/google.cloud.aiplatform.v1.JobService/GetCustomJob"


async def ask(port: int) -> grpc.StatusCode:
    """What a call is answered with, once somebody listens."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await channel.unary_unary(GET)(b"", wait_for_ready=True, timeout=30)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def doors_of(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in pids if b"turnout.doors.grpc" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_it_is_started_again_and_ends_with_the_block(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_PAUSES", (0.01,))
    port = free_port()
    async with beside(Orders("127.0.0.1", port, "http://127.0.0.1:9")):
        assert await ask(port) == grpc.StatusCode.INVALID_ARGUMENT
        [first] = doors_of(os.getpid())
        os.kill(first, signal.SIGKILL)
        assert await ask(port) == grpc.StatusCode.INVALID_ARGUMENT
        [second] = doors_of(os.getpid())
        assert second != first
    assert doors_of(os.getpid()) == []


def test_it_goes_when_the_service_is_killed():
    port = free_port()
    script = (
        "import asyncio\n"
        "from turnout.doors.grpc import Orders, beside\n"
        "async def main():\n"
        f"    async with beside(Orders('127.0.0.1', {port}, 'http://127.0.0.1:9')):\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", script])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(30)
    [door] = doors_of(service.pid)
    watch = os.pidfd_open(door)
    service.kill()
    service.wait()
    assert asyncio.run(gone(watch)), "it is still there"


async def gone(pidfd: int) -> bool:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        async with asyncio.timeout(10):
            await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return True


def test_a_port_that_somebody_has_is_not_shared(capfd: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start(Orders("127.0.0.1", port, "http://127.0.0.1:9")) as one:
            assert one.wait(30) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capfd.readouterr().err


async def test_without_the_service_calls_are_unavailable(rest_port_of_nobody: int):
    port = free_port()
    async with beside(Orders("127.0.0.1", port, f"http://127.0.0.1:{rest_port_of_nobody}")):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = GetCustomJobRequest(name="projects/p/locations/l/customJobs/1")
            with pytest.raises(grpc.aio.AioRpcError, match="does not answer") as caught:
                await channel.unary_unary(GET)(
                    GetCustomJobRequest.serialize(request), wait_for_ready=True, timeout=30
                )
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def rest_port_of_nobody() -> int:
    return free_port()


async def test_without_auth_only_our_own_user_comes_in():
    port = free_port()
    async with beside(Orders("127.0.0.1", port, "http://127.0.0.1:9", no_auth=True)):
        assert await ask(port) == grpc.StatusCode.INVALID_ARGUMENT
        if os.geteuid() == 0:
            assert await asyncio.to_thread(ask_as_nobody, port) == "PERMISSION_DENIED"


def ask_as_nobody(port: int) -> str:
    """By another user's process, which holds the connection."""
    script = (
        "import socket, sys, threading\n"
        f"out = socket.create_connection(('127.0.0.1', {port}))\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "print(listener.getsockname()[1], flush=True)\n"
        "here, _ = listener.accept()\n"
        "def pipe(a, b):\n"
        "    while data := a.recv(65536): b.sendall(data)\n"
        "threading.Thread(target=pipe, args=(here, out), daemon=True).start()\n"
        "pipe(out, here)\n"
    )
    command = ["/usr/bin/python3", "-c", script]
    relay = subprocess.Popen(command, stdout=subprocess.PIPE, user=65534, group=65534, cwd="/")
    assert relay.stdout
    try:
        by_way_of = int(relay.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{by_way_of}") as channel:
            channel.unary_unary(GET)(b"", timeout=30)
    except grpc.RpcError as error:
        return error.code().name
    finally:
        relay.kill()
        relay.wait()
        relay.stdout.close()
    return "OK"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    check()
    monkeypatch.setattr(process, "_NEEDED", ("grpc", "no_such.package", "nothing_of_that_name"))
    with pytest.raises(Misconfigured, match=r"no_such.package, nothing_of_that_name.*turnout\[grpc\]"):
        check()


def test_the_service_itself_imports_none_of_it():
    script = (
        "import sys, turnout.app\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'google', 'httpcore')])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = [name for name in ("grpc", "google.protobuf", "httpcore") if f"'{name}'" in ran.stdout]
    assert loaded == []
