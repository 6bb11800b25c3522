"""Documents of requests."""

import pytest

from turnout.gateways.s3 import xml
from turnout.gateways.s3.errors import S3Error


def test_tags_have_no_namespace():
    root = xml.parse(b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet></Delete>')
    assert (root.tag, xml.value(root, "Quiet")) == ("Delete", "true")


def test_all_parts_with_all_checksums():
    names = ("ChecksumCRC32", "ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumSHA1", "ChecksumSHA256")
    sums = "".join(f"<{name}>AAAAAAAAAAA=</{name}>" for name in names)
    parts = (f"<Part>{sums}<ETag>{1:032}</ETag><PartNumber>{n}</PartNumber></Part>" for n in range(10_000))
    root = xml.parse(f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>".encode())
    assert len(root.findall("Part")) == 10_000


@pytest.mark.parametrize(
    "document",
    [
        b"<D>" + b"<a/>" * 1_000_000 + b"</D>",
        b"<a>" * 500_000 + b"</a>" * 500_000,
        b"<D " + b" ".join(b"a%d=''" % number for number in range(300_000)) + b"/>",
    ],
    ids=["many elements", "nested elements", "many attributes"],
)
def test_a_tree_that_fills_the_memory_is_not_made(document: bytes):
    with pytest.raises(S3Error) as refused:
        xml.parse(document)
    assert refused.value.code == "EntityTooLarge"
