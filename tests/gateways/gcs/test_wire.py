"""What the library never does, or does only when something goes wrong: requests made by hand."""

import base64
import hashlib
import json
import os
import subprocess
import time
from urllib.parse import quote

import google_crc32c
import httpx
import pytest

from tests.running import KEY, running
from turnout.access import Key, make_token


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


@pytest.fixture
def http(service):
    with httpx.Client(base_url=service.endpoint, timeout=30) as client:
        yield client


def media(http: httpx.Client, bucket: str, name: str, data: bytes, **headers: str) -> httpx.Response:
    place = f"/upload/storage/v1/b/{bucket}/o"
    return http.post(place, params={"uploadType": "media", "name": name}, content=data, headers=headers)


def begin(http: httpx.Client, bucket: str, name: str, **document: object) -> str:
    place = f"/upload/storage/v1/b/{bucket}/o"
    answer = http.post(place, params={"uploadType": "resumable", "name": name}, json=document)
    assert answer.status_code == 200, answer.text
    return answer.headers["location"]


def stored(service, bucket: str, name: str) -> bytes:
    return (service.data / "buckets" / bucket / name).read_bytes()


def test_a_page_token_is_taken_as_it_was_given_only(http):
    for name in ("pages/a", "pages/b"):
        assert media(http, "raw", name, b"x").status_code == 200
    asked = {"prefix": "pages/", "maxResults": "1"}
    token = http.get("/storage/v1/b/raw/o", params=asked).json()["nextPageToken"]
    following = http.get("/storage/v1/b/raw/o", params=asked | {"pageToken": token}).json()
    assert [one["name"] for one in following["items"]] == ["pages/b"]
    for wrong in (token + ".x", token + "=", token + "\n", "x" + token, token[:-1], "!", "é"):
        answer = http.get("/storage/v1/b/raw/o", params=asked | {"pageToken": wrong})
        assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "invalid"), wrong


def test_an_upload_ends_with_the_key_that_began_it(http, service):
    root = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    made = http.post("/turnout/v1/keys", json={"project": "default"}, headers=root).json()
    mine = make_token(Key(made["id"], made["secret"], "default"), time.time())
    answer = http.post(
        "/upload/storage/v1/b/raw/o",
        params={"uploadType": "resumable", "name": "late"},
        json={},
        headers={"Authorization": f"Bearer {mine}"},
    )
    place = answer.headers["location"]
    first = http.put(place, content=b"x" * 262144, headers={"Content-Range": "bytes 0-262143/*"})
    assert first.status_code == 308
    http.delete(f"/turnout/v1/keys/{made['id']}", headers=root)
    last = http.put(place, content=b"end", headers={"Content-Range": "bytes 262144-262146/262147"})
    assert (last.status_code, "revoked" in last.json()["error"]["message"]) == (403, True)
    assert not (service.data / "buckets" / "raw" / "late").exists()


def test_errors_look_like_googles(http):
    answer = http.get("/storage/v1/b/none")
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "code": 404,
            "message": "there is no bucket 'none'",
            "errors": [{"message": "there is no bucket 'none'", "domain": "global", "reason": "notFound"}],
        }
    }
    answer = http.get("/storage/v1/b/none/acl")
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "notSupported")


@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/etc/passwd", "a//b", "./a", "a/./b", "a\0b", "a\nb", "x" * 300, "..", "."],
)
def test_no_name_leads_out_of_its_bucket(http, service, name):
    answer = media(http, "hostile", name, b"x")
    assert answer.status_code == 400, name
    for place in ("/storage/v1/b/hostile/o/", "/download/storage/v1/b/hostile/o/"):
        assert http.get(place + quote(name, safe="").replace(".", "%2E")).status_code in (400, 404)
    assert not (service.data / "buckets" / "out").exists()
    assert not (service.data / "out").exists()


@pytest.mark.parametrize("bucket", ["..", ".owners", ".uploads", "UPPER", "a%2Fb"])
def test_no_name_leads_out_of_the_buckets(http, bucket):
    place = f"/upload/storage/v1/b/{quote(bucket, safe='%')}/o?uploadType=media&name=a"
    assert http.post(place, content=b"x").status_code in (400, 404)
    assert http.get(f"/storage/v1/b/{quote(bucket, safe='%')}/o").status_code in (400, 404)


def test_links_that_a_job_made_are_not_followed(http, service):
    media(http, "linked", "seed", b"x")
    bucket = service.data / "buckets" / "linked"
    (bucket / "passwd").symlink_to("/etc/passwd")
    (bucket / "etc").symlink_to("/etc")
    assert http.get("/download/storage/v1/b/linked/o/passwd").status_code == 404
    assert http.get("/download/storage/v1/b/linked/o/etc%2Fpasswd").status_code == 404
    assert media(http, "linked", "etc/new", b"x").status_code == 400
    assert [one["name"] for one in http.get("/storage/v1/b/linked/o").json()["items"]] == ["seed"]


def test_a_body_with_a_wrong_checksum_is_not_kept(http, service):
    wrong = {"X-Goog-Hash": f"crc32c={crc32c(b'other')}"}
    assert media(http, "sums", "a", b"data", **wrong).status_code == 400
    wrong = {"Content-MD5": base64.b64encode(hashlib.md5(b"other").digest()).decode()}
    assert media(http, "sums", "a", b"data", **wrong).status_code == 400
    right = {"X-Goog-Hash": f"crc32c={crc32c(b'data')}"}
    place = begin(http, "sums", "b", crc32c=crc32c(b"other"))
    assert http.put(place, content=b"data").status_code == 400
    assert not (service.data / "buckets" / "sums").exists()
    assert media(http, "sums", "a", b"data", **right).status_code == 200


@pytest.mark.parametrize("tail", [b"\r\n--xyz--", b"\r\n--xyz--\r\n"])
@pytest.mark.parametrize("data", [b"", b"\r\n--xyz", b"\r\n--xyz--", b"\r\n" * 50_000, b"--xyz--"])
def test_multipart_bodies_are_taken_as_they_are(http, service, data, tail):
    head = b'--xyz\r\nContent-Type: application/json\r\n\r\n{"name": "parts"}\r\n--xyz\r\nContent-Type: a/b\r\n\r\n'
    answer = http.post(
        "/upload/storage/v1/b/parts/o?uploadType=multipart",
        content=head + data + tail,
        headers={"Content-Type": 'multipart/related; boundary="xyz"'},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["contentType"] == "a/b"
    assert stored(service, "parts", "parts") == data


def test_a_multipart_body_that_was_cut_off_is_refused(http, service):
    head = b'--xyz\r\n\r\n{"name": "cut"}\r\n--xyz\r\n\r\nhalf of it'
    for body in (head, head[:20], b"", b"something else"):
        answer = http.post(
            "/upload/storage/v1/b/cut/o?uploadType=multipart",
            content=body,
            headers={"Content-Type": "multipart/related; boundary=xyz"},
        )
        assert answer.status_code == 400, body
    assert not (service.data / "buckets" / "cut").exists()


def test_a_session_step_by_step(http, service):
    data = os.urandom(1000)
    place = begin(http, "steps", "whole")
    asked = http.put(place, headers={"Content-Range": "bytes */*"})
    assert (asked.status_code, asked.headers.get("range")) == (308, None)
    first = http.put(place, content=data[:400], headers={"Content-Range": "bytes 0-399/*"})
    assert (first.status_code, first.headers["range"]) == (308, "bytes=0-399")
    again = http.put(place, content=data[200:700], headers={"Content-Range": "bytes 200-699/1000"})
    assert again.headers["range"] == "bytes=0-699"
    gap = http.put(place, content=data[800:], headers={"Content-Range": "bytes 800-999/1000"})
    assert gap.status_code == 400
    last = http.put(place, content=data[700:], headers={"Content-Range": "bytes 700-999/1000"})
    assert (last.status_code, last.json()["crc32c"]) == (200, crc32c(data))
    assert stored(service, "steps", "whole") == data
    lost = http.put(place, content=data[700:], headers={"Content-Range": "bytes 700-999/1000"})
    assert lost.json() == last.json()
    wrong = http.put(place.replace("upload_id=", "upload_id=..%2F"), content=b"")
    assert wrong.status_code == 404


def test_a_session_that_is_given_up(http):
    place = begin(http, "dropped", "x")
    assert http.delete(place).status_code == 499
    assert http.put(place, content=b"x").status_code == 404


def test_a_session_goes_on_after_the_service_was_killed():
    with running() as service:
        service.start()
        data = os.urandom(3 << 20)
        with httpx.Client(base_url=service.endpoint) as http:
            place = begin(http, "survives", "whole")
            http.put(place, content=data[: 2 << 20], headers={"Content-Range": f"bytes 0-{(2 << 20) - 1}/*"})
        service.kill()
        service.start()
        with httpx.Client(base_url=service.endpoint) as http:
            asked = http.put(place, headers={"Content-Range": "bytes */*"})
            assert asked.headers["range"] == f"bytes=0-{(2 << 20) - 1}"
            rest = {"Content-Range": f"bytes {2 << 20}-{len(data) - 1}/{len(data)}"}
            answer = http.put(place, content=data[2 << 20 :], headers=rest)
            assert answer.json()["md5Hash"] == base64.b64encode(hashlib.md5(data).digest()).decode()
        assert stored(service, "survives", "whole") == data


def test_ranges(http):
    media(http, "ranges", "a", b"0123456789")
    place = "/download/storage/v1/b/ranges/o/a"

    def get(text: str) -> tuple[int, bytes, str | None]:
        answer = http.get(place, headers={"Range": text})
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert get("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert get("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert get("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert get("bytes=5-100") == (206, b"56789", "bytes 5-9/10")
    assert get("bytes=10-")[0] == 416
    assert get("lines=1-2")[:2] == (200, b"0123456789")
    head = http.head(place)
    assert (head.headers["content-length"], head.headers["x-goog-hash"][:7]) == ("10", "crc32c=")


def test_tokens_are_checked_where_one_is_sent(http):
    media(http, "tokens", "a", b"x")
    place = "/storage/v1/b/tokens/o/a"
    good = make_token(KEY, time.time())
    assert http.get(place, headers={"Authorization": f"Bearer {good}"}).status_code == 200
    expired = make_token(KEY, time.time() - 7200)
    assert http.get(place, headers={"Authorization": f"Bearer {expired}"}).status_code == 401
    for bad in ("Bearer ya29.of-google", f"Bearer {good}x", "Basic abc", "Bearer"):
        answer = http.get(place, headers={"Authorization": bad})
        assert answer.status_code == 403, bad
    forged = make_token(Key(KEY.id, "another-secret", "default"), time.time())
    assert http.get(place, headers={"Authorization": f"Bearer {forged}"}).status_code == 403


def test_no_web_page_gets_in_without_a_token(http):
    assert http.get("/storage/v1/b", headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert http.get("/storage/v1/b", headers={"Host": "elsewhere.example"}).status_code == 403
    answer = http.post(
        "/upload/storage/v1/b/lured/o?uploadType=media&name=a",
        content=b"x",
        headers={"Origin": "https://elsewhere.example"},
    )
    assert answer.status_code == 403


def test_an_object_is_no_page_for_a_browser(http):
    media(http, "pages", "a.html", b"<script>", **{"Content-Type": "text/html"})
    headers = http.get("/storage/v1/b/pages/o/a.html?alt=media").headers
    assert headers["content-security-policy"] == "sandbox"
    assert headers["content-disposition"] == "attachment"


_ASK = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1]).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("config", "status"), [("", "403"), ("[storage.gcs]\nanonymous = true\n", "200")])
def test_other_users_of_the_machine_need_a_token(config, status):
    with running(config) as service:
        service.start()
        asked = subprocess.run(
            ["/usr/bin/python3", "-c", _ASK, service.endpoint + "/storage/v1/b"],
            user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert asked.stdout.strip() == status, asked


def test_another_projects_bucket_is_closed(http, service):
    """As if a key of another project had made it."""
    media(http, "mine", "a", b"x")
    (service.data / "buckets" / ".owners" / "theirs").write_text("another")
    (service.data / "buckets" / "theirs").mkdir()
    (service.data / "buckets" / "theirs" / "a").write_text("secret")
    assert http.get("/storage/v1/b/theirs").status_code == 403
    assert http.get("/storage/v1/b/theirs/o").status_code == 403
    assert http.get("/download/storage/v1/b/theirs/o/a").status_code == 403
    assert media(http, "theirs", "b", b"x").status_code == 403
    assert http.post("/storage/v1/b/theirs/o/a/copyTo/b/mine/o/b", json={}).status_code == 403
    assert http.delete("/storage/v1/b/theirs/o/a").status_code == 403
    assert "theirs" not in json.dumps(http.get("/storage/v1/b").json())


def test_more_than_was_announced_spoils_nothing(service, http):
    session = begin(http, "excess", "x")
    range_ = {"Content-Range": "bytes 0-9/20"}
    assert http.put(session, content=iter([b"0123456789", b"excess"]), headers=range_).status_code == 400
    assert http.put(session, content=b"0123456789", headers=range_).status_code == 308
    end = {"Content-Range": "bytes 10-19/20"}
    assert http.put(session, content=b"abcdefghij", headers=end).status_code == 200
    assert stored(service, "excess", "x") == b"0123456789abcdefghij"


@pytest.mark.parametrize("metadata", [5, True, "text", [1]])
def test_metadata_that_is_none_is_refused(http, metadata):
    media(http, "strange", "x", b"x")
    answer = http.patch("/storage/v1/b/strange/o/x", json={"metadata": metadata})
    assert (answer.status_code, "metadata" in answer.text) == (400, True)


@pytest.mark.parametrize(
    "body", [b"[" * 50_000, b'{"a":' * 10_000, b'{"name": "\xff"}', b'{"name": "\\ud800"}', b"5"]
)
def test_a_body_that_is_no_document(http, body: bytes):
    for method, path in (
        ("POST", "/storage/v1/b"),
        ("PATCH", "/storage/v1/b/raw/o/x"),
        ("POST", "/turnout/v1/keys"),
    ):
        headers = {
            "Authorization": f"Bearer {make_token(KEY, time.time())}",
            "Content-Type": "application/json",
        }
        answer = http.request(method, path, content=body, headers=headers)
        assert answer.status_code == 400, (method, path, answer.text)
