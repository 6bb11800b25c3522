"""What the library can ask for and the gateway does not have: it is refused, and nothing is changed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, GoogleAPICallError, NotFound, PreconditionFailed
from google.cloud import storage

from tests.running import Service

Bucket = Any


@pytest.fixture
def bucket(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    with storage.Client(project="any") as client:
        bucket = client.bucket("promises")
        bucket.blob("here").upload_from_string("as it was")
        yield bucket


def encoded(bucket: Bucket) -> None:
    blob = bucket.blob("new")
    blob.content_encoding = "gzip"
    blob.upload_from_string(b"...")


def encoded_later(bucket: Bucket) -> None:
    blob = bucket.blob("here")
    blob.content_encoding = "gzip"
    blob.patch()


def held(bucket: Bucket) -> None:
    blob = bucket.blob("here")
    blob.temporary_hold = True
    blob.patch()


def versioned(bucket: Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()


def retained(bucket: Bucket) -> None:
    bucket.retention_period = 1000
    bucket.patch()


def swept(bucket: Bucket) -> None:
    bucket.add_lifecycle_delete_rule(age=1)
    bucket.patch()


def versioned_from_the_start(bucket: Bucket) -> None:
    new = bucket.client.bucket("promises-2")
    new.versioning_enabled = True
    new.create()


REFUSED: dict[str, Callable[[Bucket], Any]] = {
    "contentEncoding of a new object": encoded,
    "contentEncoding of an object": encoded_later,
    "temporaryHold": held,
    "versioning": versioned,
    "versioning of a new bucket": versioned_from_the_start,
    "retentionPolicy": retained,
    "lifecycle": swept,
    "x-goog-encryption": lambda it: it.blob("new", encryption_key=b"k" * 32).upload_from_string("secret"),
    "kmsKeyName": lambda it: it.blob("new", kms_key_name="projects/p/k").upload_from_string("secret"),
    "predefinedAcl": lambda it: it.blob("new").upload_from_string("x", predefined_acl="publicRead"),
    "acl of a bucket": lambda it: list(it.acl),
    "acl of an object": lambda it: it.blob("here").make_public(),
    "ifMetagenerationMatch": lambda it: it.blob("here").delete(if_metageneration_match=7),
    "ifGenerationNotMatch": lambda it: it.blob("here").delete(if_generation_not_match=7),
    "softDeleted": lambda it: list(it.list_blobs(soft_deleted=True)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_and_nothing_changes(bucket: Bucket, what: str):
    with pytest.raises(BadRequest, match=what.split()[0]):
        REFUSED[what](bucket)
    assert [blob.name for blob in bucket.list_blobs()] == ["here"]
    assert bucket.blob("here").download_as_text() == "as it was"
    assert not bucket.client.bucket("promises-2").exists()


def test_what_promises_nothing_is_ignored(bucket: Bucket):
    """The cloud's scripts set these; nothing depends on them here."""
    bucket.labels = {"team": "vision"}
    bucket.versioning_enabled = False
    bucket.patch()
    blob = bucket.blob("here")
    blob.cache_control = "no-cache"
    blob.patch()
    assert [blob.name for blob in bucket.list_blobs(versions=True)] == ["here"]


@pytest.mark.parametrize(
    ("condition", "error"),
    [({"if_source_generation_match": [5, 5]}, PreconditionFailed), ({"generation": 5}, NotFound)],
)
def test_objects_are_composed_of_the_parts_that_were_meant(
    bucket: Bucket, condition: dict[str, Any], error: type[GoogleAPICallError]
):
    bucket.blob("part").upload_from_string(", and more")
    parts = [bucket.blob("here", generation=condition.pop("generation", None)), bucket.blob("part")]
    with pytest.raises(error):
        bucket.blob("whole").compose(parts, **condition)
    assert not bucket.blob("whole").exists()
    parts = [bucket.get_blob("here"), bucket.get_blob("part")]
    bucket.blob("whole").compose(parts, if_source_generation_match=[part.generation for part in parts])
    assert bucket.blob("whole").download_as_text() == "as it was, and more"
    for name in ("part", "whole"):
        bucket.blob(name).delete()
