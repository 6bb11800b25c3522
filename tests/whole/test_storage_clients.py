"""The clients of buckets that are too heavy for the quick tests, in real jobs: s3fs, pyarrow, smart_open.

They do the same with an embedded bucket and with one in a real store.
"""

from collections.abc import Iterator

import pytest

from tests.gateways.jobs.test_stores import table
from tests.running import Service
from tests.stores import S3, s3
from tests.whole.test_frameworks import with_frameworks

__all__ = ["s3"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import s3fs, smart_open
from pyarrow import fs
amazon = s3fs.S3FileSystem()
with amazon.open("data/out/s3fs", "wb") as file:
    file.write(b"x" * (6 << 20))
print("s3fs", amazon.cat("data/in/rows.csv").split(), amazon.size("data/out/s3fs"))
for name, scheme in (("s3", "s3://"), ("gcs", "gs://")):
    with smart_open.open(scheme + "data/out/smart-" + name, "w") as file:
        file.write("y" * 100)
    with smart_open.open(scheme + "data/in/rows.csv") as file:
        print("smart-" + name, file.read().split())
for name, files in (("arrow-s3", fs.FileSystem.from_uri("s3://data/in")[0]), ("arrow-gcs", fs.GcsFileSystem())):
    with files.open_output_stream("data/out/" + name) as stream:
        stream.write(b"z" * 1000)
    with files.open_input_stream("data/in/rows.csv") as stream:
        print(name, stream.read().split())
    print(name + "-size", files.get_file_info("data/out/" + name).size)
"""


@pytest.fixture(params=["bubblewrap", "none"])
def service(request: pytest.FixtureRequest, s3: S3) -> Iterator[Service]:
    with with_frameworks(request.param, table("far", s3.backing())) as one:
        yield one


@pytest.mark.parametrize("bucket", ["data", "far"])
def test_clients_with_no_code_changed(service: Service, bucket: str):
    service.put(f"gs://{bucket}/in/rows.csv", "a,b\n1,2\n")
    program = PROGRAM.replace("data/", f"{bucket}/")
    code = f"import sys; sys.path.insert(0, {service.site!r})\n{program}"  # type: ignore[attr-defined]
    service.create("clients", "python", "-c", code)
    job = service.wait("clients", timeout=120)
    lines = [one.Log for one in service.logs("clients")]
    assert job["state"] == "succeeded", "\n".join(lines)
    found = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
    assert found["s3fs"] == f"[b'a,b', b'1,2'] {6 << 20}"
    assert found["smart-s3"] == found["smart-gcs"] == "['a,b', '1,2']"
    assert found["arrow-s3"] == found["arrow-gcs"] == "[b'a,b', b'1,2']"
    assert found["arrow-s3-size"] == found["arrow-gcs-size"] == "1000"
    assert (service.data / "buckets/data/out/s3fs").exists() == (bucket == "data")
