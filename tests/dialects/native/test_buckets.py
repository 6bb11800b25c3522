"""Buckets: make, list, remove; and that a name of another project, or of a remote store, is refused."""

from collections.abc import Iterator

import pytest

from tests.dialects.native.driving import Client
from tests.running import running

SETTINGS = """
[storage.buckets.far]
url = "s3://far-away/below"
endpoint = "http://127.0.0.1:9"
key = "k"
secret = "s"

[storage.buckets.theirs]
url = "s3://theirs"
endpoint = "http://127.0.0.1:9"
key = "k"
secret = "s"
project = "theirs"
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with running(SETTINGS) as service:
        yield Client(service.start())


def test_a_bucket_is_made_listed_and_removed(client: Client) -> None:
    mine = client.other("mine")
    assert mine.send("PUT", "/buckets/data-1").status == 201
    assert mine.send("PUT", "/buckets/data-1").status == 409
    with mine.open("PUT", "/object", b"hello", url="gs://data-1/a/b.txt"):
        pass
    [made] = [one for one in mine.get("/buckets")["buckets"] if one["name"] == "data-1"]
    assert (made["url"], made["store"], made["shared"]) == ("gs://data-1", "", False)
    full = mine.send("DELETE", "/buckets/data-1")
    assert (full.status, full.error) == (409, "the bucket 'data-1' is not empty")
    mine.send("DELETE", "/object", url="gs://data-1/a/b.txt")
    assert mine.send("DELETE", "/buckets/data-1").status == 200
    assert mine.send("DELETE", "/buckets/data-1").status == 404


def test_another_project_cannot_have_the_name_even_after_it_is_removed(client: Client) -> None:
    first, second = client.other("first"), client.other("second")
    assert first.send("PUT", "/buckets/taken").status == 201
    assert "taken" not in [one["name"] for one in second.get("/buckets")["buckets"]]
    assert second.send("PUT", "/buckets/taken").status == 403
    assert second.send("DELETE", "/buckets/taken").status == 403
    assert first.send("DELETE", "/buckets/taken").status == 200
    assert second.send("PUT", "/buckets/taken").status == 403
    assert client.send("PUT", "/buckets/taken", project="second").status == 403


@pytest.mark.parametrize("name", ["..", ".owners", ".uploads", "UPPER", "a..b", "x" * 70])
def test_names_that_are_no_buckets_are_refused(client: Client, name: str) -> None:
    for method in ("PUT", "DELETE"):
        assert client.send(method, f"/buckets/{name}").status == 400


def test_remote_buckets_of_the_settings_are_listed_for_their_project(client: Client) -> None:
    def remote(of: Client) -> list[tuple[str, str, str]]:
        found = of.get("/buckets")["buckets"]
        return [(one["name"], one["url"], one["store"]) for one in found if one["store"]]

    far = ("far", "s3://far", "s3://far-away/below")
    assert remote(client.other("mine")) == [far]
    assert remote(client.other("theirs")) == [far, ("theirs", "s3://theirs", "s3://theirs")]
    refused = client.send("PUT", "/buckets/far")
    assert (refused.status, "remote object store" in refused.error) == (400, True)
