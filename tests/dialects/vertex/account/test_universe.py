"""Where Google's libraries send the token of a service account: here, and nowhere else."""

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.vertex.account.test_bearer import turnout
from tests.running import Service, python_path

USE = """
import json, sys, threading
from google.cloud import aiplatform_v1, storage
from google.oauth2 import service_account

file, endpoint = sys.argv[1:]
universe = json.load(open(file))["universe_domain"]
scopes = ["https://www.googleapis.com/auth/cloud-platform"]
credentials = service_account.Credentials.from_service_account_file(file, scopes=scopes)
options = {"api_endpoint": endpoint}
jobs = aiplatform_v1.JobServiceClient(transport="rest", credentials=credentials, client_options=options)
print(len(list(jobs.list_custom_jobs(parent="projects/homely/locations/us-central1"))))
options["universe_domain"] = universe
client = storage.Client(project="homely", credentials=credentials, client_options=options)
client.bucket("from-homely").blob("a").upload_from_string("x")
print([bucket.name for bucket in client.list_buckets()])
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(10)
"""


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and the first lines of what was sent to other machines."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    requests.append(connection.recv(4096).split(b"\r\n")[0])
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def use(service: Service, file: Path, proxy: str) -> str:
    env = os.environ | {
        "HTTPS_PROXY": proxy,
        "HTTP_PROXY": proxy,
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": python_path(),
    }
    command = [sys.executable, "-c", USE, str(file), service.endpoint]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def account(service: Service, tmp_path: Path) -> Path:
    file = tmp_path / "account.json"
    turnout(service, "keys", "create", "--project", "homely", "--google", "--out", str(file))
    return file


def test_the_token_is_never_sent_to_google(service: Service, account: Path, proxy: tuple[str, list[bytes]]):
    proxy_address, requests = proxy
    jobs, buckets = use(service, account, proxy_address).splitlines()
    assert jobs == "0"
    assert "from-homely" in ast.literal_eval(
        buckets
    )  # other tests may have made buckets that are open to all
    assert requests == []


def test_an_account_of_googles_universe_sends_the_token(
    service: Service, account: Path, proxy: tuple[str, list[bytes]]
):
    """Checks the test above: with the universe googleapis.com, the library does send the token to Google."""
    proxy_address, requests = proxy
    account.write_text(json.dumps(json.loads(account.read_text()) | {"universe_domain": "googleapis.com"}))
    use(service, account, proxy_address)
    assert b"CONNECT iamcredentials.googleapis.com:443 HTTP/1.0" in {
        one.replace(b"1.1", b"1.0") for one in requests
    }
