"""aws-chunked bodies, signed and not, whole and broken, and however they are cut into pieces."""

import base64
import hashlib
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from turnout.access import Key, Keys
from turnout.access.sigv4 import ChunkSigner, HttpRequest
from turnout.gateways.s3.body import Body
from turnout.gateways.s3.errors import S3Error
from turnout.gateways.s3.sign import Verified, verify
from turnout.storage.embedded import checksums

# The example of AWS' documentation: 65 KiB of `a` in chunks of 64 KiB and 1 KiB.
KEY = Key("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "default")
AT = 1369353600
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
    "SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
    "x-amz-decoded-content-length;x-amz-storage-class,"
    "Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
)
HEAD = [
    ("host", "s3.amazonaws.com"),
    ("x-amz-date", "20130524T000000Z"),
    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
    ("content-encoding", "aws-chunked"),
    ("x-amz-decoded-content-length", "66560"),
    ("content-length", "66824"),
    ("authorization", AUTHORIZATION),
]
SIGNATURES = (
    b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
)


class Memory:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    @property
    def md5(self) -> str:
        return hashlib.md5(self.data).hexdigest()

    @property
    def crc32c(self) -> str:
        return checksums.encode(checksums.extend(0, self.data))


def example() -> tuple[HttpRequest, Verified]:
    request = HttpRequest("PUT", b"/examplebucket/chunkObject.txt", [], HEAD)
    return request, verify(Keys(KEY), request, AT)


def chunk(data: bytes, signature: bytes) -> bytes:
    return b"%x;chunk-signature=%s\r\n%s\r\n" % (len(data), signature, data)


def wire(first: bytes = b"a" * 65536) -> bytes:
    chunks = zip((first, b"a" * 1024, b""), SIGNATURES, strict=True)
    return b"".join(chunk(data, signature) for data, signature in chunks)


def read(body: Body, target: Memory, text: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(edges):
        body.feed(text[begin:end])
    body.finish()
    return target.data


@given(some.lists(some.integers(0, 100_000), max_size=6))
def test_the_example_of_the_documentation(cuts: list[int]):
    request, signed = example()
    target = Memory()
    assert read(Body(request, signed.payload, signed.chunks, target), target, wire(), cuts) == b"a" * 66560


def test_a_changed_chunk_does_not_fit():
    request, signed = example()
    body = Body(request, signed.payload, signed.chunks, Memory())
    with pytest.raises(S3Error, match="signature of a chunk"):
        body.feed(wire(b"b" * 65536))


@pytest.mark.parametrize("end", [10, 30_000, 66_000, 66_700])
def test_a_body_that_ends_early(end: int):
    request, signed = example()
    body = Body(request, signed.payload, signed.chunks, Memory())
    body.feed(wire()[:end])
    with pytest.raises(S3Error) as error:
        body.finish()
    assert error.value.code == "IncompleteBody"


@pytest.mark.parametrize(
    "text", [b"x" * 5000, b"zz\r\n", b"5\r\nhello!!\r\n0\r\n\r\n", b"-5\r\n", b"5;chunk-signature=1\r\nhello"]
)
def test_what_is_no_chunk(text: bytes):
    body = unsigned(b"hello", "")[0]
    with pytest.raises(S3Error):
        body.feed(text)


def unsigned(data: bytes, trailer: str) -> tuple[Body, Memory]:
    headers = [("x-amz-decoded-content-length", str(len(data))), ("x-amz-trailer", trailer)]
    target = Memory()
    return Body(
        HttpRequest("PUT", b"/b/k", [], headers), "STREAMING-UNSIGNED-PAYLOAD-TRAILER", None, target
    ), target


@given(some.binary(max_size=500), some.lists(some.integers(0, 1000), max_size=6))
def test_a_checksum_that_comes_after_the_bytes(data: bytes, cuts: list[int]):
    body, target = unsigned(data, "x-amz-checksum-crc32")
    crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big"))
    chunks = b"%x\r\n%s\r\n" % (len(data), data) if data else b""
    text = chunks + b"0\r\nx-amz-checksum-crc32:" + crc + b"\r\n\r\n"
    assert read(body, target, text, cuts) == data


@pytest.mark.parametrize(
    ("trailer", "code"),
    [(b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n", "BadDigest"), (b"\r\n", "InvalidRequest")],
)
def test_a_wrong_or_missing_checksum(trailer: bytes, code: str):
    body, _ = unsigned(b"hello", "x-amz-checksum-crc32")
    body.feed(b"5\r\nhello\r\n0\r\n" + trailer)
    with pytest.raises(S3Error) as error:
        body.finish()
    assert error.value.code == code


@pytest.mark.parametrize(("sent", "fits"), [(b"12345678", False), (b"123456789", True)])
def test_crc64nvme_is_checked(sent: bytes, fits: bool):
    """Which version 2 of the AWS command line sends unless told otherwise. Of 123456789, from its definition."""
    crc = base64.b64encode(bytes.fromhex("ae8b14860a799888")).decode()
    body, _ = unsigned(sent, "x-amz-checksum-crc64nvme")
    for byte in b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc64nvme:%s\r\n\r\n" % (len(sent), sent, crc.encode()):
        body.feed(bytes([byte]))
    if fits:
        assert body.finish() == {"x-amz-checksum-crc64nvme": crc}
        return
    with pytest.raises(S3Error) as error:
        body.finish()
    assert error.value.code == "BadDigest"


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(S3Error, match="x-amz-checksum-crc7 is not supported: use one of crc32, crc32c"):
        unsigned(b"hello", "x-amz-checksum-crc7")
    body, _ = unsigned(b"hello", "")
    body.feed(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n")
    with pytest.raises(S3Error) as error:
        body.finish()
    assert error.value.code == "MalformedTrailerError"


@pytest.mark.parametrize("tamper", [False, True])
def test_a_signed_trailer(tamper: bool):
    chain = ChunkSigner(b"key", "20130524T000000Z", "20130524/r/s3/aws4_request", "0" * 64)
    empty = hashlib.sha256(b"").hexdigest()
    first = chain.next("PAYLOAD", empty, hashlib.sha256(b"hello").hexdigest())
    after = chain._replace(signature=first)
    last = after.next("PAYLOAD", empty, empty)
    crc = checksums.encode(checksums.extend(0, b"hello"))
    line = f"x-amz-checksum-crc32c:{crc}\n"
    signature = after._replace(signature=last).next("TRAILER", hashlib.sha256(line.encode()).hexdigest())
    if tamper:
        signature = "0" * 64
    headers = [("x-amz-decoded-content-length", "5"), ("x-amz-trailer", "x-amz-checksum-crc32c")]
    body = Body(
        HttpRequest("PUT", b"/b/k", [], headers),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        chain,
        Memory(),
    )
    body.feed(chunk(b"hello", first.encode()) + chunk(b"", last.encode())[:-2])
    body.feed(f"x-amz-checksum-crc32c:{crc}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode())
    if not tamper:
        assert body.finish() == {"x-amz-checksum-crc32c": crc}
        return
    with pytest.raises(S3Error, match="signature of a chunk"):
        body.finish()
