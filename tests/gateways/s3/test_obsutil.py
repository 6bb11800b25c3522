"""The requests that obsutil sends, command by command, with each signature that OBS' tools use.

obsutil itself is a binary that package indexes do not have. The requests are those of its published source, version 5:
path style for an address with an IP, `AWS <key>:<signature>` and `x-amz-*` headers. With version 4, Huawei's Go
programs send the digest of an empty body with every body. Newer ones ask `HEAD ?apiversion` first, and sign
`OBS <key>:<signature>`.
"""

import base64
import email.utils
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import httpx
import pytest

from tests.gateways.s3.conftest import ROOT, Gateway

MB = 1 << 20
EMPTY = hashlib.sha256(b"").hexdigest()
Headers = dict[str, str]
Sign = Callable[[str, str, dict[str, str], Headers], Headers]
SUBRESOURCES = {"uploads", "uploadId", "partNumber", "delete", "location", "acl", "rename", "name"}


def version_2(word: str, prefix: str) -> Sign:
    def sign(method: str, path: str, query: dict[str, str], headers: Headers) -> Headers:
        headers = headers | {"date": email.utils.formatdate(usegmt=True)}
        lines = [method, *(headers.get(name, "") for name in ("content-md5", "content-type", "date"))]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith(prefix)]
        signed = [
            f"{name}={value}" if value else name
            for name, value in sorted(query.items())
            if name in SUBRESOURCES
        ]
        text = "\n".join([*lines, path + (f"?{'&'.join(signed)}" if signed else "")])
        mac = hmac.new(ROOT.secret.encode(), text.encode(), hashlib.sha1).digest()
        return headers | {"authorization": f"{word} {ROOT.id}:{base64.b64encode(mac).decode()}"}

    return sign


def version_4(method: str, path: str, query: dict[str, str], headers: Headers) -> Headers:
    now = time.gmtime()
    headers = headers | {
        "date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", now),
        "x-amz-content-sha256": EMPTY,
    }
    names = sorted(headers)
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    request = "\n".join((method, path, encoded(query), lines, ";".join(names), EMPTY))
    day = time.strftime("%Y%m%d", now)
    scope = f"{day}/region/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", time.strftime("%Y%m%dT%H%M%SZ", now), scope, digest))
    key = f"AWS4{ROOT.secret}".encode()
    for part in (day, "region", "s3", "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={ROOT.id}/{scope},SignedHeaders={';'.join(names)},"
        f"Signature={key.hex()}"
    }


def encoded(query: dict[str, str]) -> str:
    return "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items())
    )


class Obsutil:
    """Sends the requests of a command."""

    def __init__(self, gateway: Gateway, sign: Sign, prefix: str) -> None:
        self._sign, self.prefix = sign, prefix
        self._host = gateway.url.removeprefix("http://")
        self._client = httpx.Client(base_url=gateway.url, trust_env=False)

    def __call__(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        status: int = 200,
        **headers: str,
    ) -> httpx.Response:
        sent = {
            name.replace("_", "-").replace("x-own-", self.prefix): value for name, value in headers.items()
        }
        quoted = quote(path, safe="/-_.~")
        signed = self._sign(method, quoted, query or {}, sent | {"host": self._host})
        url = f"{quoted}?{encoded(query)}" if query else quoted
        answer = self._client.request(
            method, url, content=body, headers=signed | {"user-agent": "obsutil/5.5.12"}
        )
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer

    def close(self) -> None:
        self._client.close()


@pytest.fixture(params=["v2", "v4", "obs"])
def obsutil(request: pytest.FixtureRequest, gateway: Gateway) -> Any:
    signs: dict[str, tuple[Sign, str]] = {
        "v2": (version_2("AWS", "x-amz-"), "x-amz-"),
        "v4": (version_4, "x-amz-"),
        "obs": (version_2("OBS", "x-obs-"), "x-obs-"),
    }
    gateway.client().put_object(Bucket="util", Key="seed", Body=b"seed")
    one = Obsutil(gateway, *signs[request.param])
    yield one
    one.close()


def names(answer: httpx.Response, tag: str) -> list[str]:
    return [
        found.text or "" for found in ElementTree.fromstring(answer.content).iter() if found.tag.endswith(tag)
    ]


def test_negotiation(gateway: Gateway) -> None:
    """`HEAD /<bucket>?apiversion`, without a signature."""
    with httpx.Client(base_url=gateway.url, trust_env=False) as client:
        answer = client.head("/util?apiversion", headers={"user-agent": "obsutil/5.5.12"})
    assert (answer.status_code, answer.headers["x-obs-api"]) == (200, "3.0")


def test_mb_ls_and_stat(obsutil: Obsutil) -> None:
    obsutil("PUT", "/utilmade", x_own_acl="private")
    assert {"util", "utilmade"} <= set(names(obsutil("GET", "/", x_own_location="true"), "}Name"))
    obsutil("HEAD", "/utilmade")
    obsutil("HEAD", "/no-such-bucket", status=404)
    obsutil("PUT", "/util/tree/a.txt", body=b"hello", content_type="text/plain")
    obsutil("PUT", "/util/tree/sub/b c+ü.txt", body=b"b", content_type="text/plain")
    obsutil("PUT", "/util/tree/made/")
    listed = obsutil("GET", "/util", {"prefix": "tree/", "delimiter": "/", "max-keys": "1000"})
    assert names(listed, "}Key") == ["tree/a.txt"]
    assert names(listed, "}Prefix")[1:] == ["tree/made/", "tree/sub/"]
    everything = obsutil("GET", "/util", {"prefix": "tree/", "max-keys": "1000", "marker": "tree/made/"})
    assert names(everything, "}Key") == ["tree/sub/b c+ü.txt"]
    stat = obsutil("HEAD", "/util/tree/a.txt")
    assert (stat.headers["content-length"], stat.headers["content-type"]) == ("5", "text/plain")
    assert stat.headers["etag"].strip('"') == hashlib.md5(b"hello").hexdigest()
    assert stat.headers[f"{obsutil.prefix}request-id"]
    obsutil("DELETE", "/utilmade", status=204)


def test_cp_of_small_files_up_and_down(obsutil: Obsutil) -> None:
    md5 = hashlib.md5(b"small").hexdigest()
    obsutil("HEAD", "/util")
    sent = obsutil(
        "PUT",
        "/util/cp/small",
        body=b"small",
        content_type="application/octet-stream",
        x_own_meta_md5chksum=md5,
    )
    assert sent.headers["etag"].strip('"') == md5
    assert obsutil("HEAD", "/util/cp/small").headers[f"{obsutil.prefix}meta-md5chksum"] == md5
    assert obsutil("GET", "/util/cp/small").content == b"small"
    assert obsutil("GET", "/util/cp/small", status=206, range="bytes=0-1").content == b"sm"
    obsutil("PUT", "/util/cp/copy", x_own_copy_source="util/cp/small", x_own_metadata_directive="COPY")
    assert obsutil("GET", "/util/cp/copy").content == b"small"
    obsutil("GET", "/util/cp/none", status=404)


def test_cp_of_a_large_file_in_parts_and_ls_of_uploads(obsutil: Obsutil, gateway: Gateway) -> None:
    started = obsutil("POST", "/util/cp/large", {"uploads": ""}, x_own_storage_class="STANDARD")
    (upload,) = names(started, "}UploadId")
    assert upload in names(obsutil("GET", "/util", {"uploads": "", "max-uploads": "1000"}), "}UploadId")
    parts = [b"a" * MB, b"b" * MB, b"c" * 7]
    etags = [
        obsutil("PUT", "/util/cp/large", {"partNumber": str(number), "uploadId": upload}, part).headers[
            "etag"
        ]
        for number, part in enumerate(parts, 1)
    ]
    assert names(obsutil("GET", "/util/cp/large", {"uploadId": upload}), "}PartNumber") == ["1", "2", "3"]
    body = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    document = f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode()
    obsutil("POST", "/util/cp/large", {"uploadId": upload}, document)
    ranges = [f"bytes={start}-{start + MB - 1}" for start in (0, MB, 2 * MB)]
    got = [obsutil("GET", "/util/cp/large", status=206, range=one).content for one in ranges]
    assert b"".join(got) == b"".join(parts)
    (second,) = names(obsutil("POST", "/util/cp/aborted", {"uploads": ""}), "}UploadId")
    obsutil("DELETE", "/util/cp/aborted", {"uploadId": second}, status=204)
    assert gateway.leftovers() == []


def test_rm(obsutil: Obsutil) -> None:
    for key in ("rm/one", "rm/two", "rm/three"):
        obsutil("PUT", f"/util/{key}", body=b"x")
    obsutil("DELETE", "/util/rm/one", status=204)
    body = b"<Delete><Quiet>false</Quiet><Object><Key>rm/two</Key></Object>"
    body += b"<Object><Key>rm/three</Key></Object></Delete>"
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    gone = obsutil("POST", "/util", {"delete": ""}, body, content_md5=md5)
    assert names(gone, "}Key") == ["rm/two", "rm/three"]
    assert names(obsutil("GET", "/util", {"prefix": "rm/"}), "}Key") == []


def test_what_is_not_here_is_refused_in_the_words_of_obs(obsutil: Obsutil) -> None:
    for method, query in (("GET", {"acl": ""}), ("POST", {"rename": "", "name": "other"})):
        refused = obsutil(method, "/util/seed", query, status=501)
        assert names(refused, "Code") == ["NotImplemented"]
        assert not any(word in refused.text for word in ("AWS", "Amazon", "S3"))
