"""What the keys of a job do not open, when they end, and that they survive restarts."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.gateways.jobs.client import CLIENT
from tests.running import KEY, Service, running, supervisor_pid
from turnout.access import JobKeys, Keys
from turnout.access.job_keys import JobKey, open_secret
from turnout.job import Attempt

OTHERS = (
    CLIENT
    + """
mine = token()
print("mine", read("data", "x", mine)[0])
print("foreign", read("foreign", "x", mine)[0])
other = json.load(open(os.environ["TURNOUT_MOUNT_0"] + "/other.json")) if 0 else None
"""
)
WAIT = (
    CLIENT
    + """
print("ready", read("data", "x", token())[1], flush=True)
while read("data", "go", token())[0] != 200:
    time.sleep(0.1)
print("after", read("data", "x", token())[1], write("data", "made", "by the job", token())[0], flush=True)
"""
)


@pytest.fixture(scope="module", params=["private", "host"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with running(f'[engines.local]\nnetwork = "{request.param}"\n') as one:
        one.start()
        one.put("gs://data/x", "hello")
        yield one


def key_of(service: Service, name: str) -> JobKey:
    """The key of a job's first attempt, made as the service makes it."""
    job = int(service.native(f"/jobs/{name}")["id"])
    return JobKeys(Keys(KEY), open_secret(service.data / "job-secret")).make(Attempt(job, 1))


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lines(service: Service, name: str) -> list[str]:
    return [one.Log for one in service.logs(name)]


def start(service: Service, name: str, program: str = WAIT, *arguments: str) -> None:
    service.create(name, "python", "-u", "-c", program, *arguments)


def begin(service: Service, name: str) -> JobKey:
    """Starts a job that waits for the object `go`."""
    (service.data / "buckets/data/go").unlink(missing_ok=True)
    start(service, name)
    until(lambda: "ready hello" in lines(service, name))
    return key_of(service, name)


def release(service: Service) -> None:
    service.put("gs://data/go", "")


def s3(service: Service, key: JobKey, session: str | None = None):
    return boto3.client(
        "s3",
        endpoint_url=service.endpoint,
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        aws_session_token=key.session if session is None else session,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}),
    )


def code(call: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"]


def test_the_keys_of_a_job_end_with_it(service: Service):
    key = begin(service, "ending")
    client = s3(service, key)
    assert client.get_object(Bucket="data", Key="x")["Body"].read() == b"hello"
    url = client.generate_presigned_url("get_object", {"Bucket": "data", "Key": "x"})
    wrong = key._replace(secret=key.secret[::-1])
    assert code(lambda: s3(service, wrong).get_object(Bucket="data", Key="x")) == "SignatureDoesNotMatch"
    assert code(lambda: s3(service, key, "x" * 64).get_object(Bucket="data", Key="x")) == "InvalidToken"
    release(service)
    service.wait("ending")
    assert lines(service, "ending")[-1] == "after hello 200"
    assert code(lambda: client.get_object(Bucket="data", Key="x")) == "InvalidAccessKeyId"
    assert status(service, "/storage/v1/b/data/o/x", key.token) in (401, 403)
    assert status(service, url.removeprefix(service.endpoint)) == 403
    assert status(service, f"/job-metadata/{key.address}/computeMetadata/v1/project/project-id") == 403


def test_the_keys_open_nothing_but_buckets(service: Service):
    key = begin(service, "nosy")
    for path in (
        "/turnout/v1/jobs",
        "/turnout/v1/whoami",
        "/v1/projects/default/locations/us-central1/customJobs",
    ):
        assert status(service, path, key.token) in (401, 403, 404)
    assert status(service, "/storage/v1/b/data/o/x", key.token) == 200
    assert status(service, f"/job-metadata/{key.address[:-1]}x/computeMetadata/v1/project/project-id") == 403
    assert status(service, "/job-metadata/computeMetadata/v1/project/project-id") == 403
    release(service)
    service.wait("nosy")


def test_buckets_of_other_projects_are_refused(service: Service):
    import json
    import urllib.request

    from turnout.access import Key, make_token

    request = urllib.request.Request(
        service.endpoint + "/turnout/v1/keys",
        json.dumps({"project": "strangers"}).encode(),
        {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        made = json.load(response)
    stranger = Key(made["id"], made["secret"], "strangers")
    service.put("gs://theirs/x", "secret", stranger)
    program = (
        CLIENT
        + """
print("gcs", read("theirs", "x", token())[0], write("theirs", "y", "z", token())[0])
"""
    )
    start(service, "curious", program)
    service.wait("curious")
    assert lines(service, "curious") == ["gcs 403 403"]


def test_a_job_does_not_get_in_with_the_token_of_another(service: Service):
    key = begin(service, "victim")
    program = (
        CLIENT
        + """
print("token", read("data", "x", sys.argv[1])[0])
print("mine", read("data", "x", token())[0])
"""
    )
    start(service, "thief", program, key.token)
    service.wait("thief")
    private = b"private" in service.config.read_bytes()
    assert lines(service, "thief") == [f"token {403 if private else 200}", "mine 200"]
    release(service)
    service.wait("victim")


def test_a_gang_survives_restarts_of_service_and_supervisor(service: Service):
    begin(service, "surviving")
    service.kill()
    service.start()
    supervisor = supervisor_pid(service.data)
    assert supervisor
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: supervisor_pid(service.data) not in (None, supervisor))
    release(service)
    service.wait("surviving")
    assert lines(service, "surviving")[-1] == "after hello 200"


def test_no_key_of_a_job_is_stored_or_shown(service: Service):
    key = begin(service, "discreet")
    secrets = [part.encode() for part in key[1:]]
    secrets += [key.address.rpartition(".")[2].encode(), key.token.rpartition(".")[2].encode()]
    job = service.native("/jobs/discreet")["id"]
    for path in (f"/jobs/{job}", f"/jobs/{job}/explain", f"/jobs/{job}/logs/lines", "/audit", "/jobs"):
        assert not found_in(body(service, "/turnout/v1" + path), secrets), path
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        assert not found_in(contents(process), secrets), process
    release(service)
    service.wait("discreet")
    service.kill()
    searched = 0
    for path in (*service.data.rglob("*"), service.log):
        if path.is_file():
            searched += 1
            assert not found_in(contents(path), secrets), path
    assert searched > 10
    service.start()


def found_in(text: bytes, secrets: list[bytes]) -> list[bytes]:
    return [secret for secret in secrets if secret in text]


def contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def status(service: Service, path: str, bearer: str = "") -> int:
    return ask(service, path, bearer)[0]


def body(service: Service, path: str) -> bytes:
    from turnout.access import make_token

    status, content = ask(service, path, make_token(KEY, time.time()))
    assert status == 200, path
    return content


def ask(service: Service, path: str, bearer: str = "") -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    connection.request("GET", path, headers=headers | {"Metadata-Flavor": "Google"})
    reply = connection.getresponse()
    try:
        return reply.status, reply.read()
    finally:
        connection.close()
