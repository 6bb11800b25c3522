"""V4-signed URLs, made by google-cloud-storage with a service account's file."""

import datetime
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from google.cloud import storage
from google.oauth2 import service_account

from tests.dialects.vertex.account.test_bearer import turnout
from tests.running import KEY, Service
from turnout.access import Keys, goog4, make_token
from turnout.access.google import read_public_key
from turnout.access.keys import Key
from turnout.access.sigv4 import HttpRequest, Problem, SignatureError, parse_query

HOUR = datetime.timedelta(hours=1)
Sign = Callable[..., str]


@pytest.fixture(scope="module")
def account(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("account") / "account.json"
    turnout(service, "keys", "create", "--project", "p1", "--google", "--out", str(file))
    return file


@pytest.fixture
def client(service: Service, account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    info = json.loads(account.read_text())
    credentials = service_account.Credentials.from_service_account_info(info)
    options = {"universe_domain": info["universe_domain"]}
    with storage.Client(project="p1", credentials=credentials, client_options=options) as one:
        yield one


@pytest.fixture
def sign(client: Any) -> Sign:
    def make(name: str = "a", bucket: str = "of-p1", **options: Any) -> str:
        blob = client.bucket(bucket).blob(name)
        return blob.generate_signed_url(version="v4", expiration=HOUR, **options)

    return make


def changed(url: str, **values: str) -> str:
    parts = urlsplit(url)
    given = {name.replace("_", "-"): value for name, value in values.items()}
    return parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | given)).geturl()


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/xml"
    return answer.status_code, answer.text.partition("<Code>")[2].partition("</Code>")[0]


def test_put_get_and_delete(sign: Sign, client: Any):
    name = "dir/ü +&?%~.txt"
    put = httpx.put(
        sign(name, method="PUT", content_type="text/csv"), content=b"hi", headers={"Content-Type": "text/csv"}
    )
    assert put.status_code == 200, put.text
    assert client.bucket("of-p1").get_blob(name).content_type == "text/csv"
    assert httpx.get(sign(name)).content == b"hi"
    assert httpx.get(sign(name), headers={"Range": "bytes=1-"}).content == b"i"
    assert httpx.head(sign(name, method="HEAD")).headers["content-length"] == "2"
    assert httpx.delete(sign(name, method="DELETE")).status_code == 204
    assert code(httpx.get(sign(name))) == (404, "NoSuchKey")
    assert code(httpx.get(sign(name, bucket="never-made"))) == (404, "NoSuchBucket")


def test_a_path_that_belongs_to_another_api(sign: Sign):
    for bucket, name in (
        ("turnout", "v1/whoami"),
        ("storage", "v1/b"),
        ("v1", "projects/p"),
        ("healthz", "x"),
    ):
        assert httpx.put(sign(name, bucket, method="PUT"), content=b"x").status_code == 200
        assert httpx.get(sign(name, bucket)).content == b"x"


def test_a_session(sign: Sign, client: Any):
    headers = {"x-goog-resumable": "start", "x-goog-meta-owner": "me"}
    answer = httpx.post(
        sign("session", method="RESUMABLE", headers={"x-goog-meta-owner": "me"}), headers=headers
    )
    assert answer.status_code == 201
    done = httpx.put(answer.headers["location"], content=b"whole", headers={"Content-Range": "bytes 0-4/5"})
    assert done.status_code == 200
    found = client.bucket("of-p1").get_blob("session")
    assert (found.download_as_bytes(), found.metadata) == (b"whole", {"owner": "me"})


def test_what_the_signer_chose(sign: Sign):
    httpx.put(sign(method="PUT"), content=b"<script>")
    url = sign(response_type="text/html", response_disposition="inline")
    answer = httpx.get(url)
    assert (answer.headers["content-type"], answer.headers["content-disposition"]) == ("text/html", "inline")
    assert answer.headers["content-security-policy"] == "sandbox"
    assert code(httpx.get(changed(url, response_content_type="a/b"))) == (403, "SignatureDoesNotMatch")
    assert code(httpx.get(sign(response_disposition="a\nb"))) == (400, "InvalidArgument")
    generation = answer.headers["x-goog-generation"]
    assert httpx.get(sign(generation=generation)).status_code == 200
    assert code(httpx.get(sign(generation="1"))) == (404, "NoSuchKey")
    once = {"x-goog-if-generation-match": "0"}
    assert code(httpx.put(sign(method="PUT", headers=dict(once)), headers=once, content=b"x")) == (
        412,
        "PreconditionFailed",
    )


def test_how_much_the_signer_allows(sign: Sign):
    sizes = {"x-goog-content-length-range": "2,5"}

    def put(data: bytes) -> httpx.Response:
        return httpx.put(sign("sized", method="PUT", headers=dict(sizes)), headers=sizes, content=data)

    assert code(put(b"x")) == (400, "InvalidArgument")
    assert code(put(b"x" * 6)) == (413, "EntityTooLarge")
    assert put(b"x" * 5).status_code == 200
    headers = sizes | {"x-goog-resumable": "start"}
    place = httpx.post(sign("sized", method="RESUMABLE", headers=dict(sizes)), headers=headers).headers[
        "location"
    ]
    assert httpx.put(place, content=b"x" * 6).status_code == 413
    assert httpx.put(place, content=b"x").status_code == 400
    wrong = {"x-goog-content-length-range": "few"}
    assert code(httpx.put(sign(method="PUT", headers=dict(wrong)), headers=wrong)) == (400, "InvalidArgument")


def test_the_body_that_the_signer_chose(sign: Sign):
    digest = {"x-goog-content-sha256": hashlib.sha256(b"right").hexdigest()}
    url = sign("digest", method="PUT", headers=dict(digest))
    assert code(httpx.put(url, content=b"wrong", headers=digest)) == (400, "InvalidArgument")
    assert httpx.put(url, content=b"right", headers=digest).status_code == 200


def test_nothing_else_than_what_was_signed(sign: Sign):
    httpx.put(sign(method="PUT"), content=b"x")
    url = sign()
    mismatch = (403, "SignatureDoesNotMatch")
    for wrong in (
        url.replace("/a?", "/b?"),
        url.replace("/of-p1/", "/of-p2/"),
        changed(url, X_Goog_Expires="7200"),
        changed(url, X_Goog_Signature="00" * 256),
        changed(url, X_Goog_Signature="xyz"),
        changed(url, more="x"),
    ):
        assert code(httpx.get(wrong)) == mismatch
    assert code(httpx.delete(url)) == code(httpx.put(url, content=b"")) == mismatch
    assert code(httpx.get(url, headers={"Host": "elsewhere.example"})) == mismatch
    unsigned = {"x-goog-if-generation-match": "1"}
    assert code(httpx.get(url, headers=unsigned)) == (400, "MalformedSecurityHeader")


def test_what_cannot_be_read(sign: Sign, service: Service):
    url = sign()
    for wrong in (
        changed(url, X_Goog_Algorithm="GOOG4-HMAC-SHA256"),
        changed(url, X_Goog_Credential="x"),
        changed(url, X_Goog_Credential="a@b/20200101/auto/storage/goog4_request"),
        changed(url, X_Goog_Date="yesterday"),
        changed(url, X_Goog_Expires="604801"),
        changed(url, X_Goog_Expires="0"),
        changed(url, X_Goog_SignedHeaders=""),
        f"{service.endpoint}/b/a?X-Goog-Signature=00",
    ):
        assert code(httpx.get(wrong)) == (400, "InvalidQueryParameterValue")
    for path in ("", "b", "b/", "UPPER/a", "../a", "b/%FF", "b/a%2F..%2F..%2Fc"):
        assert 400 <= httpx.get(f"{service.endpoint}/{path}?{urlsplit(url).query}").status_code < 500


def test_names_that_lead_nowhere(sign: Sign):
    assert code(httpx.put(sign("a/../b", method="PUT"), content=b"x"))[0] in (400, 403)
    assert code(httpx.put(sign("a//b", method="PUT"), content=b"x")) == (400, "InvalidArgument")
    assert code(httpx.put(sign("a", bucket="UPPER", method="PUT"), content=b"x")) == (400, "InvalidArgument")


def test_projects_stay_apart(sign: Sign, service: Service):
    (service.data / "buckets" / ".owners" / "of-another").write_text("another")
    assert code(httpx.put(sign(bucket="of-another", method="PUT"), content=b"x")) == (403, "AccessDenied")


def test_it_ends_with_the_key(service: Service, tmp_path: Path):
    file = tmp_path / "short.json"
    turnout(service, "keys", "create", "--project", "p1", "--google", "--out", str(file))
    info = json.loads(file.read_text())
    credentials = service_account.Credentials.from_service_account_info(info)
    options = {"universe_domain": info["universe_domain"], "api_endpoint": service.endpoint}
    with storage.Client(project="p1", credentials=credentials, client_options=options) as client:
        blob = client.bucket("of-p1").blob("short")
        url = blob.generate_signed_url(
            version="v4", expiration=HOUR, method="PUT", api_access_endpoint=service.endpoint
        )
    assert httpx.put(url, content=b"x").status_code == 200
    key = info["client_email"].partition("@")[0]
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    httpx.delete(f"{service.endpoint}/turnout/v1/keys/{key}", headers=headers)
    assert code(httpx.put(url, content=b"x")) == (403, "InvalidSecurity")


def test_it_ends(sign: Sign, account: Path):
    """A URL of the library, an hour later and a quarter of an hour early."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    info = json.loads(account.read_text())
    public = load_pem_private_key(info["private_key"].encode(), None).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    key = Key(info["client_email"].partition("@")[0], "secret", "p1", public=read_public_key(pem))
    url = urlsplit(sign())
    headers = [("host", url.netloc)]
    request = HttpRequest("GET", url.path.encode(), parse_query(url.query.encode()), headers)
    find = Keys(key).find
    assert goog4.verify(find, request, time.time()) == (key, "UNSIGNED-PAYLOAD")
    for later, problem in ((3605, Problem.EXPIRED), (-1000, Problem.SKEWED)):
        with pytest.raises(SignatureError) as raised:
            goog4.verify(find, request, time.time() + later)
        assert raised.value.problem is problem
    with pytest.raises(SignatureError):
        goog4.verify(Keys(key._replace(project="p2")).find, request, time.time())
    with pytest.raises(SignatureError):
        goog4.verify(Keys(key._replace(public=b"")).find, request, time.time())
