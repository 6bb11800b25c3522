"""The process beside the service: it comes back when it dies, and goes when the service goes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.cloud.aiplatform_v1 import GetCustomJobRequest

from turnout.child_processes.bootstrap import Identity
from turnout.errors import Misconfigured
from turnout.gateways.grpc import GatewaySetup, check, process, run_process

NOBODY = 65534
GET = "/google.cloud.aiplatform.v1.JobService/GetCustomJob"


async def ask(port: int) -> grpc.StatusCode:
    """What a call is answered with, once somebody listens. In a thread: grpc.aio crashes now and then under uvloop."""
    error = await asyncio.to_thread(call, port, b"")
    print(error.details())
    return error.code()


def call(port: int, message: bytes) -> Any:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(GET)(message, wait_for_ready=True, timeout=30)
    return caught.value


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def nobody_there(listener: socket.socket, **details: Any) -> GatewaySetup:
    """In front of a service that does not answer."""
    return GatewaySetup(listener.fileno(), "127.0.0.1", "http://127.0.0.1:9", **details)


def port_of(listener: socket.socket) -> int:
    return listener.getsockname()[1]


def gateways_of(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in pids if b"turnout.gateways.grpc" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_it_is_started_again_and_ends_with_the_block(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
):
    monkeypatch.setattr(process, "_PAUSES", (0.01,))
    port = port_of(listener)
    async with run_process(nobody_there(listener)):
        assert await ask(port) == grpc.StatusCode.UNAVAILABLE
        [first] = gateways_of(os.getpid())
        os.kill(first, signal.SIGKILL)
        assert await ask(port) == grpc.StatusCode.UNAVAILABLE
        [second] = gateways_of(os.getpid())
        assert second != first
    assert gateways_of(os.getpid()) == []


def test_it_goes_when_the_service_is_killed(listener: socket.socket):
    port = port_of(listener)
    script = (
        "import asyncio\n"
        "from turnout.gateways.grpc import GatewaySetup, run_process\n"
        "async def main():\n"
        f"    async with run_process(GatewaySetup({listener.fileno()}, '127.0.0.1', 'http://127.0.0.1:9')):\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", script], pass_fds=[listener.fileno()])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(30)
    [gateway] = gateways_of(service.pid)
    watch = os.pidfd_open(gateway)
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


async def test_without_the_service_calls_are_unavailable(listener: socket.socket):
    port = port_of(listener)
    async with run_process(nobody_there(listener)):
        request = GetCustomJobRequest(name="projects/p/locations/l/customJobs/1")
        error = await asyncio.to_thread(call, port, GetCustomJobRequest.serialize(request))
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert "does not answer" in error.details()


@pytest.mark.parametrize("other", [False, True])
async def test_without_auth_only_our_own_user_comes_in(listener: socket.socket, other: bool):
    """Also where the process itself runs as another user."""
    if other and os.geteuid():
        pytest.skip("only root can become another user")
    port = port_of(listener)
    setup = nobody_there(listener, no_auth=True, operator=os.getuid())
    async with run_process(setup, Identity(NOBODY, NOBODY) if other else None):
        assert await ask(port) == grpc.StatusCode.INVALID_ARGUMENT
        [gateway] = gateways_of(os.getpid())
        assert psutil.Process(gateway).uids().real == (NOBODY if other else os.getuid())
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
    relay = subprocess.Popen(command, stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, cwd="/")
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
