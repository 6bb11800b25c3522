"""The service's ports stay reserved when it ends: nothing else can take them, and clients wait or get 503."""

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import boto3
import grpc
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError
from google.api_core.exceptions import ServiceUnavailable
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.location import locations_pb2
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.certificates import make_certificate
from tests.running import KEY, Service, free_port, reachable_directory, running, supervisor_pid
from turnout.access import make_token
from turnout.engines.local.supervisor.listeners import Listeners, Port

ORDINARY = 65534
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
UNBOXED = '[engines.local]\nsandbox = "none"\n'


def ask(service: Service, path: str = "/healthz", method: str = "GET", **details: Any) -> tuple[int, str]:
    """Status and Retry-After."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, **details)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("Retry-After", "")


@contextlib.contextmanager
def in_background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


def queued(port: int) -> int:
    """The number of connections that wait to be accepted, from the kernel."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if state == "0A" and int(local.rpartition(":")[2], 16) == port:
            return int(queues.partition(":")[2], 16)
    return -1


def until(true: Any, what: str = "") -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_requests_made_while_the_service_is_down_wait_and_succeed() -> None:
    with running() as service, in_background() as pool:
        service.start()
        service.kill()
        plain = [pool.submit(ask, service) for _ in range(40)]
        jobs = [pool.submit(service.create, f"job-{number}", "true") for number in range(10)]
        until(lambda: queued(service.port) == 50)
        assert not any(one.done() for one in (*plain, *jobs))
        service.start()
        assert {one.result() for one in plain} == {(200, "")}
        assert {one.result().Name for one in jobs} == {f"job-{number}" for number in range(10)}
        for number in range(10):
            assert service.wait(f"job-{number}")["state"] == "succeeded"


def test_no_new_connection_is_refused_under_load_and_kills() -> None:
    with running() as service, in_background() as pool:
        service.start()
        over = threading.Event()
        loads: list[Future[list[Exception]]] = [pool.submit(load, service, over) for _ in range(8)]
        for _ in range(3):
            service.kill()
            service.start()
        over.set()
        troubles = [error for one in loads for error in one.result()]
        # What a service that is killed has accepted is lost with it; who comes after that waits.
        assert not [error for error in troubles if isinstance(error, ConnectionRefusedError)], troubles


def load(service: Service, over: threading.Event) -> list[Exception]:
    troubles: list[Exception] = []
    while not over.is_set():
        try:
            assert ask(service)[0] == 200
        except Exception as error:  # noqa: BLE001 all of them are looked at
            troubles.append(error)
    return troubles


THIEF = """
import socket, sys, time
def attempt(host, family, *options):
    with socket.socket(family) as one:
        for option in options:
            one.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            one.bind((host, int(sys.argv[1])))
            one.listen()
            print("stolen", flush=True)
        except OSError as error:
            return error.errno
while True:
    for host, family in (("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)):
        attempt(host, family)
        attempt(host, family, socket.SO_REUSEADDR)
        attempt(host, family, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    print("tried", flush=True)
    time.sleep(0.01)
"""


@pytest.mark.parametrize("user", [None, pytest.param(ORDINARY, marks=ONLY_ROOT)])
def test_a_job_cannot_take_the_port_while_the_service_is_down(user: int | None) -> None:
    with running(UNBOXED, user=user) as service:
        service.start()
        service.create("thief", "python", "-c", THIEF, str(service.port))
        service.wait("thief", "started")
        [out] = service.data.glob("attempts/*_master-0/stdout")
        until(lambda: b"tried" in out.read_bytes())
        service.kill()
        before = out.stat().st_size
        until(lambda: out.stat().st_size > before + 200)
        service.start()
        service.terminate()
        before = out.stat().st_size
        until(lambda: out.stat().st_size > before + 200)
        service.start()
        assert b"stolen" not in out.read_bytes()
        assert service.describe("thief").State == "Running"


def test_a_new_supervisor_holds_the_ports_too() -> None:
    with running() as service:
        service.start()
        supervisor = supervisor_pid(service.data)
        assert supervisor
        os.kill(supervisor, 9)
        until(lambda: supervisor_pid(service.data) not in (None, supervisor))
        service.create("job", "true")
        assert service.wait("job")["state"] == "succeeded", "it is connected"
        service.kill()
        assert not free(service.port)
        service.start()


@pytest.fixture(scope="module")
def stopped() -> Iterator[Service]:
    """A deliberate stop while a job runs."""
    port = free_port()
    with running(f"[storage.s3]\nport = {port}\n") as service:
        service.start()
        service.create("long", "sleep", "1000")
        service.wait("long", "started")
        assert service.terminate() == 0
        service.env["S3"] = str(port)
        yield service


class TestAfterADeliberateStopWhileAJobRuns:
    def test_after_a_stop_clients_get_503_at_once(self, stopped: Service) -> None:
        assert ask(stopped) == (503, "5")
        assert ask(stopped, method="HEAD") == (503, "5")

    def test_a_body_that_is_being_sent_does_not_lose_the_answer(self, stopped: Service) -> None:
        assert ask(stopped, "/", "POST", body=b"x" * (20 << 20)) == (503, "5")

    def test_tencents_sdk(self, stopped: Service) -> None:
        with pytest.raises(TencentCloudSDKException, match="not running"):
            stopped.describe("long")

    def test_googles_client_retries(self, stopped: Service) -> None:
        client = storage.Client(
            "default", AnonymousCredentials(), client_options={"api_endpoint": stopped.endpoint}
        )
        with pytest.raises(ServiceUnavailable, match="not running"):
            client.get_bucket("b", retry=cast(Any, None))

    def test_boto_retries(self, stopped: Service) -> None:
        client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{stopped.env['S3']}",
            region_name="x",
            aws_access_key_id=KEY.id,
            aws_secret_access_key=KEY.secret,
            config=Config(retries={"total_max_attempts": 2, "mode": "standard"}),
        )
        with pytest.raises(ClientError) as raised:
            client.list_buckets()
        metadata: Any = raised.value.response["ResponseMetadata"]
        assert (metadata["HTTPStatusCode"], metadata["RetryAttempts"]) == (503, 1)

    def test_many_silent_connections_do_not_block_others(self, stopped: Service) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                stack.enter_context(socket.create_connection(("127.0.0.1", stopped.port)))
            assert ask(stopped) == (503, "5")
            supervisor = supervisor_pid(stopped.data)
            assert len(os.listdir(f"/proc/{supervisor}/fd")) < 400

    def test_another_service_reports_who_holds_the_port(self, stopped: Service) -> None:
        with running() as other:
            other.port = stopped.port
            other.start(wait=False)
            assert other.process
            assert other.process.wait(30) == 1
            told = other.log.read_text()
            assert (
                f"the supervisor (process {supervisor_pid(stopped.data)}) of the data directory {stopped.data}"
                in told
            )
            assert f"use turnout serve --data {stopped.data}, or give --port another number" in told
            assert not other.data.exists()

    def test_the_next_service_gets_the_port_back(self, stopped: Service) -> None:
        stopped.start()
        assert ask(stopped) == (200, "")
        stopped.delete("long")
        assert stopped.terminate() == 0
        until(lambda: free(stopped.port), "the supervisor has nothing to keep and lets go")


def test_clients_get_503_if_the_service_does_not_restart_in_time() -> None:
    with running("[server]\nrestart_seconds = 0.5\n") as service, in_background() as pool:
        service.start()
        service.create("long", "sleep", "1000")
        service.wait("long", "started")
        service.kill()
        waiting = pool.submit(ask, service)
        assert waiting.result() == (503, "5")
        service.start()
        assert ask(service) == (200, "")


@pytest.mark.slow
def test_without_jobs_the_ports_are_released_if_no_service_restarts() -> None:
    with running("[server]\nrestart_seconds = 2\n") as service:
        service.start()
        supervisor = supervisor_pid(service.data)
        service.kill()
        assert not free(service.port)
        assert supervisor_pid(service.data) == supervisor
        until(lambda: free(service.port))


@pytest.mark.slow
def test_a_port_that_left_the_settings_is_released() -> None:
    with running() as service:
        service.start()
        service.create("long", "sleep", "1000")
        service.wait("long", "started")
        service.kill()
        old, service.port = service.port, free_port()
        service.start()
        assert free(old)
        service.kill()
        assert not free(service.port)
        # The same number on another address: the one that is held is in the way.
        service.start("--host", "0.0.0.0")
        assert ask(service) == (200, "")


def test_port_0_means_any_port() -> None:
    with running() as service:
        service.port = 0
        service.start(wait=False)
        until(lambda: "listens on" in service.log.read_text())
        first = service.log.read_text()
        service.kill()
        service.log.unlink()
        service.start(wait=False)
        until(lambda: "listens on" in service.log.read_text())
        assert service.log.read_text().splitlines()[0] == first.splitlines()[0], "the one that it had"


@pytest.mark.slow
def test_over_tls() -> None:
    with reachable_directory() as place, running() as service:
        pair = make_certificate(place)
        service.start()
        service.create("long", "sleep", "1000")
        service.wait("long", "started")
        service.terminate()
        service.config.write_text(pair.settings)
        service.log.unlink()
        service.start(wait=False)
        until(lambda: "listens on https" in service.log.read_text())
        service.terminate()
        pair.key.unlink()  # nothing is read from the disk any more
        url = f"https://127.0.0.1:{service.port}/"
        with socket.create_connection(("127.0.0.1", service.port)):
            for body in (b"", b"x" * (4 << 20)):
                answer = requests.post(url, data=body, verify=str(pair.authority))
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(service)


@pytest.mark.slow
@pytest.mark.parametrize("user", [None, pytest.param(ORDINARY, marks=ONLY_ROOT)])
def test_a_job_cannot_take_the_port_of_grpc(user: int | None) -> None:
    """Not even a job with the same user."""
    port = free_port()
    with running(UNBOXED + f"[grpc]\nport = {port}\n", user=user) as service:
        service.start()
        service.create("thief", "python", "-c", THIEF, str(port))
        service.wait("thief", "started")
        [out] = service.data.glob("attempts/*_master-0/stdout")
        for end in (service.kill, service.terminate):
            until(lambda: b"tried" in out.read_bytes())
            end()
            before = out.stat().st_size
            until(lambda before=before: out.stat().st_size > before + 200)
            service.start()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(30)
        assert b"stolen" not in out.read_bytes()


def test_calls_made_while_the_service_is_down_wait_and_succeed(
    service_with_grpc: tuple[Service, int],
) -> None:
    service, port = service_with_grpc
    service.kill()
    with in_background() as pool:
        waiting = pool.submit(list_locations, port)
        until(lambda: queued(port) >= 1)
        assert not waiting.done()
        service.start()
        assert waiting.result() == "OK"
    service.terminate()
    assert list_locations(port, 2) in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


@pytest.fixture
def service_with_grpc() -> Iterator[tuple[Service, int]]:
    port = free_port()
    with running(f"[grpc]\nport = {port}\n") as service:
        service.start()
        service.create("long", "sleep", "1000")
        service.wait("long", "started")
        yield service, port


def list_locations(port: int, timeout: float = 60) -> str:
    request = locations_pb2.ListLocationsRequest(name="projects/default").SerializeToString()
    metadata = (("authorization", f"Bearer {make_token(KEY, time.time())}"),)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/google.cloud.location.Locations/ListLocations")
        try:
            call(request, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            answer: Any = error
            return answer.code().name
    return "OK"


def test_a_supervisor_of_an_earlier_version_holds_no_ports(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "socket"))
        old.listen()

        def hang_up_at_the_end() -> None:
            connection, _ = old.accept()
            with connection:
                while connection.recv(100):
                    pass

        supervisor = threading.Thread(target=hang_up_at_the_end)
        supervisor.start()
        with Listeners([Port("main", "127.0.0.1", 0, "--port")]) as listeners:
            listeners.take(tmp_path)
            listeners.bind()
            assert len(listeners.listening) == 1
        supervisor.join()
