"""gcsfs, which pandas, PyTorch Lightning and Hugging Face's datasets use for gs://."""

import os
import time

import pytest
from google.oauth2.credentials import Credentials

from tests.running import KEY
from turnout.access import make_token

os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # read at import; see docs/storage-gcs.md
import gcsfs

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")


@pytest.fixture
def files(service) -> gcsfs.GCSFileSystem:
    token = Credentials(make_token(KEY, time.time()))
    return gcsfs.GCSFileSystem(
        token=token, project="default", endpoint_url=service.endpoint, use_listings_cache=False
    )


def test_a_small_file_there_and_back(files, service):
    files.pipe_file("fs/dir/small", b"two\r\nlines\r")
    assert (service.data / "buckets" / "fs" / "dir" / "small").read_bytes() == b"two\r\nlines\r"
    assert files.cat("fs/dir/small") == b"two\r\nlines\r"
    assert files.ls("fs/dir") == ["fs/dir/small"]
    assert files.info("fs/dir/small")["size"] == 11
    files.rm("fs/dir", recursive=True)
    assert not files.exists("fs/dir/small")


@pytest.mark.parametrize("size", [0, 1, 256 << 10, 6 << 20, (6 << 20) + 1])
def test_a_file_that_is_written_piece_by_piece(files, size):
    data = os.urandom(size)
    with files.open("fs/pieces", "wb", block_size=1 << 20) as file:
        file.write(data)
    assert files.cat("fs/pieces") == data
    with files.open("fs/pieces", "rb") as file:
        file.seek(size // 2)
        assert file.read() == data[size // 2 :]


def test_a_file_in_several_chunks(files, tmp_path):
    data = os.urandom(3 << 20)
    files.pipe_file("fs/chunks", data, chunksize=1 << 20)
    assert files.cat("fs/chunks") == data
    (tmp_path / "local").write_bytes(data)
    files.put(str(tmp_path / "local"), "fs/put", chunksize=1 << 20)
    files.get("fs/put", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


def test_a_file_that_is_given_up_leaves_nothing(files):
    files.start_transaction()
    with files.open("fs/given-up", "wb") as file:
        file.write(os.urandom(1 << 20))
    files.transaction.complete(commit=False)
    assert not files.exists("fs/given-up")


def test_copies_moves_and_globs(files):
    files.pipe({"fs/g/a.csv": b"1", "fs/g/b.csv": b"2", "fs/g/deep/c.csv": b"3", "fs/g/d.txt": b"4"})
    assert files.glob("fs/g/*.csv") == ["fs/g/a.csv", "fs/g/b.csv"]
    assert files.glob("fs/g/**/*.csv") == ["fs/g/a.csv", "fs/g/b.csv", "fs/g/deep/c.csv"]
    files.mv("fs/g/a.csv", "fs/g/moved.csv")
    assert files.find("fs/g") == ["fs/g/b.csv", "fs/g/d.txt", "fs/g/deep/c.csv", "fs/g/moved.csv"]


def test_without_a_right_to_it_it_fails_at_once(service):
    wrong = Credentials(make_token(KEY._replace(secret="wrong"), time.time()))
    files = gcsfs.GCSFileSystem(token=wrong, project="default", endpoint_url=service.endpoint)
    began = time.monotonic()
    with pytest.raises(OSError, match="no such key"):
        files.cat("fs/anything")
    assert time.monotonic() - began < 5
