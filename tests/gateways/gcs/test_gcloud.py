"""Uploads of `gcloud storage`: requests as apitools makes them, because gcloud cannot be installed by pip."""

import email.generator
import io
import json
import os
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart

import httpx
import pytest


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.endpoint, timeout=30) as client:
        client.post("/storage/v1/b?project=p", json={"name": "gcloud"})
        yield client


def simple_upload(name: str, data: bytes) -> tuple[dict[str, str], bytes]:
    """Header and body of a multipart upload. Its lines end with LF, its boundary is in single quotes."""
    root = MIMEMultipart("related")
    root._write_headers = lambda generator: None  # type: ignore[attr-defined]
    document = MIMENonMultipart("application", "json")
    document.set_payload(json.dumps({"bucket": "gcloud", "name": name}))
    media = MIMENonMultipart("text", "plain")
    media["Content-Transfer-Encoding"] = "binary"
    media.set_payload(data.decode("ascii"))
    root.attach(document)
    root.attach(media)
    body = io.BytesIO()
    email.generator.BytesGenerator(body, mangle_from_=False).flatten(root)
    return {"Content-Type": f"multipart/related; boundary={root.get_boundary()!r}"}, body.getvalue()


@pytest.mark.parametrize("data", [b"", b"hello", b"two\nlines\n", b"\n\n--x", b"From here\n"])
def test_a_small_file(http, service, data):
    assert http.get("/storage/v1/b/gcloud/storageLayout?alt=json").json() == {
        "kind": "storage#storageLayout",
        "bucket": "gcloud",
        "location": "US",
        "locationType": "multi-region",
        "hierarchicalNamespace": {"enabled": False},
    }
    headers, body = simple_upload("small.txt", data)
    place = "/upload/storage/v1/b/gcloud/o?alt=json&fields=generation%2Cname%2Csize&uploadType=multipart"
    answer = http.post(place, content=body, headers=headers)
    assert (answer.status_code, answer.json()["size"]) == (200, str(len(data)))
    assert answer.json()["contentType"] == "text/plain"
    assert (service.data / "buckets" / "gcloud" / "small.txt").read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"\r", b"\r\n", b"x\r\n--==0==", b"\n--==0==", b"\n" * 100_000])
def test_lines_that_end_with_lf_leave_the_data_as_it_is(http, service, data):
    head = b'--==0==\nContent-Type: application/json\n\n{"name": "raw"}\n--==0==\nContent-Type: a/b\n\n'
    answer = http.post(
        "/upload/storage/v1/b/gcloud/o?uploadType=multipart",
        content=head + data + b"\n--==0==--",
        headers={"Content-Type": 'multipart/related; boundary="==0=="'},
    )
    assert answer.status_code == 200, answer.text
    assert (service.data / "buckets" / "gcloud" / "raw").read_bytes() == data


def begin(http: httpx.Client, name: str, size: int | None) -> str:
    length = {} if size is None else {"X-Upload-Content-Length": str(size)}
    answer = http.post(
        "/resumable/upload/storage/v1/b/gcloud/o?alt=json&name=&uploadType=resumable",
        json={"bucket": "gcloud", "name": name},
        headers={"X-Upload-Content-Type": "application/octet-stream", **length},
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["location"]


def test_a_large_file_in_one_body(http, service):
    data = os.urandom(1_000_000)
    place = begin(http, "large", len(data))
    headers = {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"}
    answer = http.put(place, content=data, headers=headers)
    assert (answer.status_code, answer.json()["size"]) == (200, str(len(data)))
    assert (service.data / "buckets" / "gcloud" / "large").read_bytes() == data


def test_a_large_file_after_a_broken_connection(http, service):
    data = os.urandom(1_000_000)
    place = begin(http, "broken", len(data))
    http.put(place, content=data[:300_000], headers={"Content-Range": f"bytes 0-299999/{len(data)}"})
    state = http.put(place, headers={"Content-Range": "bytes */*"})
    assert (state.status_code, state.headers["range"]) == (308, "bytes=0-299999")
    rest = {"Content-Range": f"bytes 300000-{len(data) - 1}/{len(data)}"}
    assert http.put(place, content=data[300_000:], headers=rest).status_code == 200
    assert (service.data / "buckets" / "gcloud" / "broken").read_bytes() == data


def test_a_pipe_in_chunks(http, service):
    chunk = 256 << 10
    data = os.urandom(2 * chunk)
    place = begin(http, "pipe", None)
    for at in (0, chunk):
        headers = {"Content-Range": f"bytes {at}-{at + chunk - 1}/*"}
        assert http.put(place, content=data[at : at + chunk], headers=headers).status_code == 308
    assert http.put(place, headers={"Content-Range": f"bytes */{len(data)}"}).status_code == 200
    assert (service.data / "buckets" / "gcloud" / "pipe").read_bytes() == data


@pytest.mark.parametrize("part", ["storageLayout", "managedFolders", "acl", "iam", "anywhereCaches"])
def test_nothing_that_will_never_work_is_answered_with_a_status_that_gcloud_retries(http, part):
    assert http.get(f"/storage/v1/b/gcloud/{part}").status_code in (200, 400)
    assert http.get(f"/storage/v1/b/none/{part}").status_code in (400, 404)


@pytest.mark.parametrize(
    "place", ["/resumable/upload/storage/v1/b/gcloud/o/x", "/resumable/upload/storage/v1/b/x"]
)
def test_other_addresses_are_refused(http, place):
    assert http.post(place, json={}).status_code == 400
