"""google-cloud-storage, pointed here by STORAGE_EMULATOR_HOST as its documentation says."""

import base64
import hashlib
import io
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import google_crc32c
import pytest
from google.api_core.exceptions import Conflict, Forbidden, NotFound, PreconditionFailed
from google.cloud import storage
from google.oauth2.credentials import Credentials

from tests.running import KEY, ROOT, running
from turnout.access import make_token


@pytest.fixture
def client(service, monkeypatch) -> Iterator[storage.Client]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    with storage.Client(project="anything") as one:
        yield one


@pytest.fixture
def bucket(client, request) -> storage.Bucket:
    return client.bucket(f"b-{hashlib.md5(request.node.name.encode()).hexdigest()[:12]}")


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def test_a_small_object_there_and_back(bucket, service):
    blob = bucket.blob("a/b c+ü%2F.txt")
    blob.metadata = {"colour": "blue"}
    blob.upload_from_string("hello", content_type="text/plain")
    again = bucket.get_blob("a/b c+ü%2F.txt")
    assert again.download_as_bytes() == b"hello"
    assert (again.size, again.content_type, again.metadata) == (5, "text/plain", {"colour": "blue"})
    assert again.crc32c == crc32c(b"hello")
    assert again.md5_hash == base64.b64encode(hashlib.md5(b"hello").digest()).decode()
    assert again.updated.year >= 2024
    assert (service.data / "buckets" / bucket.name / "a" / "b c+ü%2F.txt").read_bytes() == b"hello"


def test_a_large_file_there_and_back(bucket, tmp_path):
    source = tmp_path / "large"
    source.write_bytes(os.urandom(20 << 20))
    blob = bucket.blob("large", chunk_size=1 << 20)
    blob.upload_from_filename(source)
    assert blob.crc32c == crc32c(source.read_bytes())
    bucket.blob("large").download_to_filename(tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    bucket.blob("large", chunk_size=3 << 20).download_to_filename(tmp_path / "in-pieces")
    assert (tmp_path / "in-pieces").read_bytes() == source.read_bytes()
    assert bucket.blob("large").download_as_bytes(start=10, end=19) == source.read_bytes()[10:20]


def test_written_as_a_file_whose_length_nobody_knows(bucket):
    blob = bucket.blob("stream")
    data = os.urandom(700_000)
    with blob.open("wb", chunk_size=256 << 10) as out:
        out.write(data)
    with blob.open("rb") as back:
        assert back.read() == data


@pytest.mark.parametrize("size", [0, 1, 256 << 10, (256 << 10) + 1])
def test_resumable_uploads_of_odd_sizes(bucket, size):
    blob = bucket.blob(f"odd-{size}", chunk_size=256 << 10)
    data = os.urandom(size)
    blob.upload_from_file(io.BytesIO(data), size=None)
    assert bucket.blob(blob.name).download_as_bytes() == data


def test_buckets_are_made_found_and_removed(client, bucket):
    assert not bucket.exists()
    client.create_bucket(bucket)
    assert bucket.exists()
    assert client.get_bucket(bucket.name).location == "US"
    assert bucket.name in [one.name for one in client.list_buckets()]
    with pytest.raises(Conflict):
        client.create_bucket(bucket)
    bucket.blob("a").upload_from_string("x")
    with pytest.raises(Conflict, match="not empty"):
        bucket.delete()
    bucket.blob("a").delete()
    bucket.delete()
    assert not bucket.exists()
    with pytest.raises(NotFound):
        client.get_bucket(bucket.name)


def test_lists_with_prefix_delimiter_and_pages(client, bucket):
    names = ["a.txt", "d/1", "d/2", "d/e/3", "z"]
    for name in names:
        bucket.blob(name).upload_from_string(name)
    assert [blob.name for blob in client.list_blobs(bucket)] == names
    assert [blob.name for blob in client.list_blobs(bucket, page_size=2)] == names
    assert [blob.name for blob in client.list_blobs(bucket, max_results=2)] == names[:2]
    found = client.list_blobs(bucket, prefix="d/", delimiter="/")
    assert ([blob.name for blob in found], found.prefixes) == (["d/1", "d/2"], {"d/e/"})
    between = client.list_blobs(bucket, start_offset="d/2", end_offset="z")
    assert [blob.name for blob in between] == ["d/2", "d/e/3"]
    assert list(client.list_blobs(bucket, prefix="none/")) == []


def test_missing_things_are_not_found(client, bucket):
    bucket.blob("here").upload_from_string("x")
    assert not bucket.blob("nowhere").exists()
    assert bucket.get_blob("nowhere") is None
    with pytest.raises(NotFound, match="no 'nowhere'"):
        bucket.blob("nowhere").delete()
    with pytest.raises(NotFound):
        bucket.blob("nowhere").download_as_bytes()
    with pytest.raises(NotFound, match="no bucket 'b-none'"):
        list(client.list_blobs("b-none"))


def test_generations_guard_against_two_writers(bucket):
    blob = bucket.blob("once")
    blob.upload_from_string("first", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("once").upload_from_string("second", if_generation_match=0)
    first = blob.generation
    bucket.blob("once").upload_from_string("third", if_generation_match=first)
    with pytest.raises(PreconditionFailed):
        bucket.blob("once").delete(if_generation_match=first)
    assert bucket.blob("once").download_as_bytes() == b"third"


def test_copies_renames_composes_and_changes(bucket):
    one = bucket.blob("one")
    one.upload_from_string("1" * 1000, content_type="text/x-one")
    copy = bucket.copy_blob(one, bucket, "dir/copy")
    assert (copy.download_as_bytes(), copy.content_type) == (b"1" * 1000, "text/x-one")
    moved = bucket.rename_blob(copy, "dir/moved")
    assert (moved.exists(), copy.exists()) == (True, False)
    token, done, total = bucket.blob("rewritten").rewrite(one)
    assert (token, done, total) == (None, 1000, 1000)
    two = bucket.blob("two")
    two.upload_from_string("22")
    whole = bucket.blob("whole")
    whole.compose([two, one])
    assert whole.download_as_bytes() == b"22" + b"1" * 1000
    whole.reload()
    assert whole.crc32c == crc32c(b"22" + b"1" * 1000)
    whole.metadata = {"a": "1", "b": "2"}
    whole.patch()
    again = bucket.get_blob("whole")
    again.metadata = {"a": None, "c": "3"}
    again.content_type = "text/new"
    again.patch()
    final = bucket.get_blob("whole")
    assert (final.metadata, final.content_type) == ({"b": "2", "c": "3"}, "text/new")


def test_what_a_job_wrote_itself_can_be_downloaded(bucket, service):
    bucket.blob("seed").upload_from_string("x")
    (service.data / "buckets" / bucket.name / "model.bin").write_bytes(b"weights")
    assert bucket.blob("model.bin").download_as_bytes() == b"weights"
    assert bucket.get_blob("model.bin").md5_hash is None


def test_who_may_not_hears_why(service, monkeypatch):
    """On 401 the library would say "Anonymous credentials cannot be refreshed" instead."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    page = {"Origin": "https://elsewhere.example"}
    with storage.Client(project="any", extra_headers=page) as client:
        with pytest.raises(Forbidden, match="send Authorization: Bearer"):
            list(client.list_buckets())
        with pytest.raises(Forbidden, match="send Authorization: Bearer"):
            client.bucket("b").blob("a").upload_from_string("x")
    wrong = Credentials(make_token(KEY._replace(secret="wrong"), time.time()))
    refused = pytest.raises(Forbidden, match="no such key, or a wrong secret")
    with storage.Client(project="any", credentials=wrong) as client, refused:
        list(client.list_buckets())


def test_a_token_that_has_expired_is_replaced(service, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)

    def refresh(request: object, scopes: object) -> tuple[str, datetime]:
        until = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
        return make_token(KEY, time.time()), until

    expired = Credentials(make_token(KEY, time.time() - 7200), refresh_handler=refresh)
    with storage.Client(project="any", credentials=expired) as client:
        client.bucket("refreshed").blob("a").upload_from_string("x")
        assert [blob.name for blob in client.list_blobs("refreshed")] == ["a"]


def test_several_uploads_at_a_time(bucket):
    data = {f"n/{i}": os.urandom(1 << 20) for i in range(8)}
    threads = [
        threading.Thread(target=lambda name=name: bucket.blob(name).upload_from_string(data[name]))
        for name in data
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {blob.name: blob.download_as_bytes() for blob in bucket.list_blobs()} == data


def test_an_upload_goes_on_when_the_service_is_killed_in_the_middle(monkeypatch):
    with running() as service:
        service.start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
        source = Pausing(os.urandom(8 << 20))
        with storage.Client(project="anything") as client:
            blob = client.bucket("killed").blob("whole", chunk_size=1 << 20)
            upload = threading.Thread(target=blob.upload_from_file, args=(source,))
            upload.start()
            assert source.halfway.wait(30)
            service.kill()
            source.go_on.set()
            service.start()
            upload.join(60)
            assert blob.crc32c == crc32c(source.getvalue())
            assert client.bucket("killed").blob("whole").download_as_bytes() == source.getvalue()


class Pausing(io.BytesIO):
    """Stops in the middle until it is told to go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.halfway, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= 4 << 20:
            self.halfway.set()
            self.go_on.wait(30)
        return super().read(size)


STAGE = """
import sys
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform
nobody = AnonymousCredentials()
aiplatform.init(project="p", location="us-central1", staging_bucket="gs://staging", credentials=nobody)
image = "gcr.io/any/image:1"
aiplatform.CustomJob.from_local_script(display_name="hello", script_path=sys.argv[1], container_uri=image)
"""


@pytest.mark.slow
def test_vertex_stages_a_local_script_here(service, tmp_path):
    (tmp_path / "task.py").write_text("print('hello')\n")
    python = ROOT / ".venv-slow/bin/python"
    environment = os.environ | {"STORAGE_EMULATOR_HOST": service.endpoint}
    environment.pop("PYTHONPATH", None)
    subprocess.run([python, "-c", STAGE, tmp_path / "task.py"], env=environment, check=True, timeout=120)
    [package] = (service.data / "buckets" / "staging").glob("aiplatform-*.tar.gz")
    assert package.stat().st_size > 0
