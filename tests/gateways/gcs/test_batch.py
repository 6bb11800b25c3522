"""Batches of calls, by the library and by hand."""

import asyncio
import re
import threading
import time

import httpx
import pytest
from google.api_core.exceptions import NotFound
from google.cloud import storage

from tests.gateways.gcs.test_gcsfs import gcsfs
from tests.running import KEY
from turnout.access import Key, make_token


@pytest.fixture
def client(service, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    with storage.Client(project="any") as one:
        yield one


def send(service, body: str, headers: dict[str, str] | None = None) -> httpx.Response:
    kind = {"Content-Type": 'multipart/mixed; boundary="==b=="'}
    return httpx.post(f"{service.endpoint}/batch/storage/v1", content=body, headers=kind | (headers or {}))


def part(line: str, headers: str = "", content_id: str = "") -> str:
    named = f"Content-ID: {content_id}\n" if content_id else ""
    return f"\n--==b==\nContent-Type: application/http\n{named}\n{line} HTTP/1.1\n{headers}"


def statuses(answer: httpx.Response) -> list[int]:
    return [int(one) for one in re.findall(r"HTTP/1\.1 (\d+) ", answer.text)]


def test_the_library_deletes_and_changes_many(client):
    bucket = client.bucket("batches")
    blobs = [bucket.blob(f"d/ü {number}") for number in range(150)]
    for blob in blobs[:5]:
        blob.upload_from_string("x")
    with client.batch():
        blobs[0].metadata = {"a": "1"}
        blobs[0].patch()
        for blob in blobs[1:4]:
            blob.delete()
    assert [blob.name for blob in client.list_blobs(bucket)] == ["d/ü 0", "d/ü 4"]
    assert bucket.get_blob("d/ü 0").metadata == {"a": "1"}
    with pytest.raises(NotFound, match="no 'd/ü 9'"), client.batch():
        bucket.delete_blobs([blobs[9], blobs[0]])
    assert [blob.name for blob in client.list_blobs(bucket)] == ["d/ü 4"]
    bucket.delete_blobs([blobs[4], *blobs[100:140]], on_error=lambda blob: None)
    with client.batch(raise_exception=False) as batch:
        for blob in blobs:
            blob.delete()
    assert {one.status_code for one in batch._responses} == {404}


def test_gcsfs_would_delete_in_batches(service):
    """It does where it believes that it talks to Google."""
    files = gcsfs.GCSFileSystem(token="anon", endpoint_url=service.endpoint, asynchronous=True)

    async def work() -> list:
        await files._pipe_file("batches/f1", b"x")
        await files._pipe_file("batches/f2", b"x")
        found = await files._rm_files(["batches/f1", "batches/none", "batches/f2"])
        if files._session:
            await files._session.close()
        return found

    first, second, third = asyncio.run(work())
    assert (first, third) == ("batches/f1", "batches/f2")
    assert "no 'none'" in str(second)


def test_each_call_has_its_own_outcome(service):
    body = part("GET /storage/v1/b/none", content_id="<a+1>")
    body += part("GET http://elsewhere.example/storage/v1/b/none/o/x?alt=json", "accept: application/json\n")
    body += part("PUT /upload/storage/v1/b/x/o") + part("GET /storage/v1/b/x/o/y?alt=media")
    body += part("POST /batch/storage/v1") + part("GET /turnout/v1/keys") + part("BREW /storage/v1/b/x")
    body += part("GET /storage/v1/b/x/o/%FF") + part("GET //[::1/x")
    answer = send(service, body + "\n--==b==--")
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=batch_")
    assert statuses(answer) == [404, 404, 400, 400, 400, 400, 400, 400, 400]
    assert "Content-ID: <response-a+1>" in answer.text


def test_a_call_may_have_a_token_of_its_own(service):
    root = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    made = httpx.post(f"{service.endpoint}/turnout/v1/keys", json={"project": "p1"}, headers=root).json()
    mine = make_token(Key(made["id"], made["secret"], "p1"), time.time())
    upload = f"{service.endpoint}/upload/storage/v1/b/of-p1/o?uploadType=media&name=a"
    assert httpx.post(upload, content=b"x", headers={"Authorization": f"Bearer {mine}"}).status_code == 200
    ask = "GET /storage/v1/b/of-p1/o/a"
    body = part(ask) + part(ask, f"Authorization: Bearer {mine}\n") + part(ask, "Authorization: Bearer x\n")
    assert statuses(send(service, body + "\n--==b==--", root)) == [403, 200, 403]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "x",
        "--==b==--",
        "--==b==\n\nGET / HTTP/1.1\n",
        part("nonsense") + "\n--==b==--",
        "\n--==b==\n--==b==--",
    ],
)
def test_what_is_no_batch(service, body):
    assert send(service, body).status_code == 400


def test_a_boundary_counts_only_at_the_beginning_of_a_line(service):
    asked = part("PATCH /storage/v1/b/none/o/x", 'Content-Type: application/json\n\n{"a": "--==b==\\n"}')
    answer = send(service, asked + part("GET /storage/v1/b/none") + "\n--==b==x\n--==b==--")
    assert statuses(answer) == [404, 404]


@pytest.mark.parametrize(
    "body",
    [
        "\n" * (10 << 20),
        "\n--==b==x" * (1 << 20),
        ("\n--==b==" + " " * 10_000) * 1000,
        part("GET /storage/v1/b/none", "a: b\n" * 2_000_000) + "\n--==b==--",
        part("GET " + " " * (9 << 20)) + "\n--==b==--",
    ],
    ids=["lines", "no boundaries", "long boundaries", "headers", "a long line"],
)
def test_a_large_batch_delays_nobody(service, body):
    delays: list[float] = []

    def look(done: threading.Event) -> None:
        with httpx.Client() as other:
            while not done.is_set():
                began = time.perf_counter()
                other.get(f"{service.endpoint}/healthz")
                delays.append(time.perf_counter() - began)

    done = threading.Event()
    looking = threading.Thread(target=look, args=(done,))
    looking.start()
    try:
        assert send(service, body).status_code == 400
    finally:
        done.set()
        looking.join()
    assert max(delays) < 0.5


def test_a_batch_needs_a_right_too(service):
    body = part("GET /storage/v1/b/none") + "\n--==b==--"
    assert send(service, body, {"Origin": "https://elsewhere.example"}).status_code == 403
    assert send(service, body, {"Authorization": "Bearer x"}).status_code == 403
    assert httpx.post(f"{service.endpoint}/batch/storage/v1", content=body).status_code == 400
    assert httpx.get(f"{service.endpoint}/batch/storage/v1").status_code == 400
    assert send(service, part("GET /storage/v1/b/none") * 1001 + "\n--==b==--").status_code == 400
    assert send(service, "x" * (11 << 20)).status_code == 413
