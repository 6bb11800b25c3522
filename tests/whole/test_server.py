"""The service process: how it starts, answers, refuses and ends."""

import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from tests.running import Service, python_path, running


def get(service: Service, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(service.endpoint + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_health_metrics_and_a_page_for_browsers(service: Service) -> None:
    assert get(service, "/healthz")[0] == 200
    metrics = get(service, "/metrics")[2]
    assert "turnout_engines_ready 1" in metrics
    assert 'turnout_cluster_ready{cluster="ap-beijing"} 1' in metrics
    for state in ("preparing", "queued", "running", "stopping"):
        assert f'turnout_jobs{{state="{state}"}} 0\n' in metrics
    status, kind, text = get(service, "/", Accept="text/html,application/xhtml+xml")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert '<div id="app">' in text


def test_curl_of_the_endpoint_says_what_is_there(service: Service) -> None:
    status, kind, text = get(service, "/", Accept="*/*")
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    assert text.startswith("Turnout 0.")
    for path in ("/v2/<project>/training-jobs", "/v1/projects/<project>/locations", "/healthz"):
        assert f"{service.endpoint}{path}" in text


def test_an_unsigned_call_is_refused_the_way_the_cloud_does(service: Service) -> None:
    status, kind, text = get(service, "/?Action=ListJobs&Version=2018-02-26&Cluster=ap-beijing")
    assert (status, kind) == (200, "application/json")
    assert json.loads(text)["Response"]["Error"]["Code"].startswith("AuthFailure")
    assert get(service, "/turnout/v1/whoami")[0] == 401


def test_a_second_service_on_the_same_directory_is_refused(service: Service) -> None:
    second = Service(service.data)
    second.start(wait=False)
    assert second.process is not None
    assert second.process.wait(30) == 1
    assert "uses" in second.log.read_text().splitlines()[-1]
    assert get(service, "/healthz")[0] == 200


def test_files_that_hold_secrets_are_private(service: Service) -> None:
    for name in ("turnout.db", "turnout.db-wal", "lock"):
        assert stat.S_IMODE((service.data / name).stat().st_mode) == 0o600, name


def test_sigterm_ends_it_at_once_and_leaves_jobs_running() -> None:
    with running() as service:
        service.start()
        service.create("long", "sh", "-c", "echo begun; sleep 3; echo done")
        service.wait("long", "started")
        began = time.monotonic()
        assert service.terminate() == 0
        assert time.monotonic() - began < 15, "generous: the machine is shared"
        farewell = "1 job keeps running; turnout serve picks it up again\n"
        assert service.log.read_text().endswith(f"logs hello\n{farewell}")
        service.start()
        job = service.wait("long")
        assert (job["state"], job["replicas"][0]["exit_code"]) == ("succeeded", 0)
        assert [log.Log for log in service.logs("long")] == ["begun", "done"]
        assert service.terminate() == 0
        assert service.log.read_text().endswith("logs hello\n"), "nothing runs, so there is nothing to tell"


def test_a_request_that_is_not_http_is_logged_in_the_same_format(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as stranger:
        stranger.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        while stranger.recv(4096):
            pass
    line = service.log.read_text().splitlines()[-1]
    assert re.fullmatch(r"20\d\d-\S+ \S+ WARNING uvicorn\S*: Invalid HTTP request received\.", line)


def test_sigterm_ends_waiting_requests() -> None:
    with running() as service:
        service.start()
        service.create("long", "sleep", "1000")
        client = subprocess.Popen(
            [sys.executable, "-c", _WAITER, service.endpoint],
            env=os.environ | {"PYTHONPATH": f"{python_path()}:{os.getcwd()}"},
            stdout=subprocess.PIPE,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == b"waiting\n"
        assert service.terminate() == 0
        client.wait(20)
        client.stdout.close()


_WAITER = """
import sys, time, urllib.request
from tests.running import KEY
from turnout.access import make_token
url = sys.argv[1] + "/turnout/v1/jobs/long/wait?timeout=500"
request = urllib.request.Request(url, headers={"Authorization": "Bearer " + make_token(KEY, time.time())})
print("waiting", flush=True)
urllib.request.urlopen(request).read()
"""


class TestWithoutAuth:
    def test_no_auth_works_for_the_same_user_on_loopback(self) -> None:
        with running() as service:
            service.start("--no-auth")
            assert "TURNOUT_KEY" not in service.log.read_text()
            assert f"export TURNOUT_ENDPOINT={service.endpoint}\n" in service.log.read_text()
            _, _, text = get(service, "/?Action=ListJobs&Version=2018-02-26&Cluster=ap-beijing")
            assert json.loads(text)["Response"]["Jobs"] == []
            assert get(service, "/healthz", Host="evil.example")[0] == 403
            assert get(service, "/healthz", Origin="http://evil.example")[0] == 403
            assert get(service, "/healthz", Origin=service.endpoint)[0] == 200

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
    def test_no_auth_refuses_other_users_of_the_machine(self) -> None:
        with running() as service:
            service.start("--no-auth")
            code = f"import urllib.request as u; u.urlopen('{service.endpoint}/healthz')"
            other = subprocess.run(
                ["/usr/bin/python3", "-c", code], user="nobody", capture_output=True, text=True, cwd="/"
            )
            assert "403" in other.stderr

    def test_no_auth_is_refused_on_other_addresses(self) -> None:
        with running() as service:
            service.start("--no-auth", "--host", "0.0.0.0", wait=False)
            assert service.process is not None
            assert service.process.wait(20) == 1
            assert "loopback only" in service.log.read_text()


def test_a_misspelt_setting_suggests_the_right_one() -> None:
    with running('[engines.local]\nsanbox = "none"\n') as service:
        service.start(wait=False)
        assert service.process is not None
        assert service.process.wait(20) == 1
        assert "did you mean sandbox?" in service.log.read_text()


def test_a_port_that_is_taken_is_reported(service: Service) -> None:
    with running() as other:
        other.port = service.port
        other.start(wait=False)
        assert other.process is not None
        assert other.process.wait(20) == 1
        assert "--port" in other.log.read_text()


def on_a_terminal(service: Service) -> str:
    """The output of a start on a terminal. It is the first start if there is no data yet."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "turnout.cli.main", "serve", "--port", str(service.port)]
    command += ["--data", str(service.data)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    service.process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env=clean | {"PYTHONPATH": python_path()}, cwd="/"
    )
    os.close(theirs)
    shown = b""
    while b"logs hello" not in shown:
        shown += os.read(ours, 4096)
    service.kill()
    os.close(ours)
    return shown.decode()


def test_the_root_key_is_shown_once_and_only_to_a_terminal() -> None:
    with running() as service:
        first, second = on_a_terminal(service), on_a_terminal(service)
        file = service.data / "root-key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        secret = file.read_text().strip()
        assert f"root key   {secret}\r\n" in first
        assert f"TURNOUT_KEY={secret}" in first
        assert secret not in second
        assert f"root key   in {file}" in second
        assert f'TURNOUT_KEY="$(cat {file})"' in second


def test_a_log_does_not_contain_the_root_key() -> None:
    with running() as service:
        service.start(TURNOUT_ROOT_KEY="")
        secret = (service.data / "root-key").read_text().strip()
        assert secret.partition(":")[2] not in service.log.read_text()
        assert str(service.data / "root-key") in service.log.read_text()


def test_the_limit_of_open_files_is_raised_for_the_service_only() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running("[limits]\nopen_files = 300\n") as service:
        service.start(wrapper=["sh", "-c", 'ulimit -Sn 512 && exec "$@"', "sh"])
        assert service.process
        assert psutil.Process(service.process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] == min(hard, 1 << 20)
        service.create("job", "sh", "-c", "ulimit -n")
        service.wait("job")
        assert [line.Log for line in service.logs("job")] == ["300"]


def test_a_cluster_that_is_away_does_not_make_the_others_unready() -> None:
    with running() as one:
        one.config.write_text('[clusters.away]\nengine = "slurm"\ncommand = ["false"]\n')
        one.start()
        metrics = get(one, "/metrics")[2]
        assert "turnout_engines_ready 1" in metrics
        assert 'turnout_cluster_ready{cluster="ap-beijing"} 1' in metrics
        deadline = time.monotonic() + 30
        while 'turnout_cluster_ready{cluster="away"} 0' not in metrics:
            assert time.monotonic() < deadline, metrics
            time.sleep(0.05)
            metrics = get(one, "/metrics")[2]
        status, _, text = get(one, "/healthz")
        assert status == 200
        assert "warning: no job starts on away: squeue failed" in text
