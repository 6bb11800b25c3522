"""The requests that `gcloud storage` 528 sent (`--log-http`), replayed in their order with the statuses that it needs.

Uploads are in test_gcloud.py. Requests that a command repeats are left out. `{a}` is the generation of `tree/a`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.running import Service

NAMES = "alt=json&fields=bucket%2Cname%2Csize%2Cgeneration&projection=noAcl"
PAGE = (
    "alt=json&fields=prefixes%2Citems%2Fname%2Citems%2Fsize%2Citems%2Fgeneration%2CnextPageToken"
    "&{}maxResults=1000&{}projection=noAcl"
)
COMPARED = (
    "alt=json&fields=prefixes%2Citems%2Fname%2Citems%2Fetag%2Citems%2Fsize%2Citems%2Fgeneration%2Citems%2FstorageClass"
    "%2Citems%2FtimeCreated%2Citems%2Fmetadata%2Fgoog-reserved-file-atime%2Citems%2Fmetadata%2Fgoog-reserved-posix-gid"
    "%2Citems%2Fmetadata%2Fgoog-reserved-posix-mode%2Citems%2Fmetadata%2Fgoog-reserved-file-mtime"
    "%2Citems%2Fmetadata%2Fgoog-reserved-posix-uid%2Citems%2Fcrc32c%2Citems%2Fmd5Hash%2CnextPageToken"
    "%2Citems%2FkmsKeyName&maxResults=1000&prefix=tree%2F&projection=noAcl"
)
FOLDERS = "delimiter=%2F&includeFoldersAsPrefixes=True&"
MOVED = '{"bucket": "g1", "contentType": "text/plain", "crc32c": "%s", "md5Hash": "%s", "name": "moved"}'


class Step(NamedTuple):
    method: str
    address: str
    """Below /storage/v1/b, or from the root if it begins with a slash."""
    status: int = 200
    found: str = ""
    """What the answer has."""
    range: str = ""


COMMANDS = {
    "ls gs://g1": [Step("GET", f"g1/o?{PAGE.format(FOLDERS, '')}", found='"prefixes":["tree/"]')],
    "ls gs://g1/**": [Step("GET", f"g1/o?{PAGE.format('', '')}", found='"name":"tree/sub/b"')],
    "cat gs://g1/tree/a": [
        Step("GET", "g1/o/tree%2Fa?alt=json&projection=noAcl", found='"size":"5"'),
        Step("GET", "/download/storage/v1/b/g1/o/tree%2Fa?generation={a}&alt=media", 206, "hello", "bytes=0-4"),
    ],
    "mv gs://g1/tree/a gs://g1/moved": [
        Step("GET", "g1/storageLayout?alt=json"),
        Step("GET", "g1/o/tree%2Fa?alt=json&projection=noAcl"),
        Step("GET", f"g1/o/moved?{NAMES}", 404),
        Step("GET", f"g1/o?{PAGE.format(FOLDERS, 'prefix=moved&')}", found='"items":[]'),
        Step("POST", "g1/o/tree%2Fa/rewriteTo/b/g1/o/moved?alt=json&maxBytesRewrittenPerCall=104857600"),
        Step("DELETE", "g1/o/tree%2Fa?alt=json", 204),
        Step("GET", "g1/o/tree%2Fa?alt=json&projection=noAcl", 404),
    ],
    "rsync -r gs://g1/tree tree-back": [
        Step("GET", f"g1/o/tree?{NAMES}", 404),
        Step("GET", f"g1/o?{PAGE.format('delimiter=%2F&', 'prefix=tree&')}", found='"prefixes":["tree/"]'),
        Step("GET", f"g1/o?{COMPARED}", found='"name":"tree/sub/b"'),
        Step("GET", "/download/storage/v1/b/g1/o/tree%2Fsub%2Fb?alt=media&generation={b}", 206, "h", "bytes=0-0"),
    ],
    "rm gs://g1/moved": [
        Step("GET", f"g1/o/moved?{NAMES}", found='"generation":'),
        Step("DELETE", "g1/o/moved?alt=json", 204),
    ],
    "rm -r gs://g1": [
        Step("GET", f"g1/o?{PAGE.format('', '')}&versions=True", found='"name":"tree/sub/b"'),
        Step("DELETE", "g1/o/tree%2Fsub%2Fb?alt=json&generation={b}", 204),
        Step("GET", "g1/storageLayout?alt=json"),
        Step("GET", "g1/o?alt=json&maxResults=1000&projection=noAcl", found='"items":[]'),
        Step("GET", "g1/managedFolders?alt=json&pageSize=1000"),
        Step("DELETE", "g1?alt=json", 204),
    ],
}  # fmt: skip


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.endpoint, timeout=30) as client:
        yield client


def test_a_session(http: httpx.Client, service: Service):
    query = "alt=json&enableObjectRetention=False&project=p1&projection=noAcl"
    assert http.post(f"/storage/v1/b?{query}", json={"name": "g1"}).status_code == 200
    objects = {
        letter: http.post(f"/upload/storage/v1/b/g1/o?uploadType=media&name={name}", content="hello").json()
        for letter, name in (("a", "tree/a"), ("b", "tree/sub/b"))
    }
    generations = {letter: document["generation"] for letter, document in objects.items()}
    moved = MOVED % (objects["a"]["crc32c"], objects["a"]["md5Hash"])
    for command, steps in COMMANDS.items():
        for step in steps:
            address = step.address.format(**generations)
            answer = http.request(
                step.method,
                address if address.startswith("/") else f"/storage/v1/b/{address}",
                content=moved if step.method == "POST" else None,
                headers={"Content-Type": "application/json"} | ({"Range": step.range} if step.range else {}),
            )
            assert answer.status_code == step.status, (command, step, answer.text)
            assert step.found in answer.text, (command, step, answer.text)
    assert not (service.data / "buckets" / "g1").exists()
