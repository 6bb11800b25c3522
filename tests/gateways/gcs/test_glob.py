"""`matchGlob` of a list: which keys a pattern matches."""

import time
from typing import Any

import pytest
from google.cloud import storage

from turnout.errors import Invalid
from turnout.gateways.gcs.glob import Glob

KEYS = ["a.txt", "ab.csv", "b.txt", "d/a.txt", "d/e/a.txt", "d/e/f.csv", "x{y", "z*"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("**.txt", ["a.txt", "b.txt", "d/a.txt", "d/e/a.txt"]),
        ("**/a.txt", ["a.txt", "d/a.txt", "d/e/a.txt"]),
        ("d/**/a.txt", ["d/a.txt", "d/e/a.txt"]),
        ("d/**", ["d/a.txt", "d/e/a.txt", "d/e/f.csv"]),
        ("d/*", ["d/a.txt"]),
        ("d/*/*", ["d/e/a.txt", "d/e/f.csv"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("[a-b].txt", ["a.txt", "b.txt"]),
        ("[!a].txt", ["b.txt"]),
        ("[^b]*.csv", ["ab.csv"]),
        ("{a,ab}.{txt,csv}", ["a.txt", "ab.csv"]),
        ("{d/{a,b}.txt,*.csv}", ["ab.csv", "d/a.txt"]),
        (r"x\{y", ["x{y"]),
        (r"z\*", ["z*"]),
        ("z[*]", ["z*"]),
        ("d?a.txt", []),
        ("d[/]a.txt", []),
        ("**", KEYS),
        ("none", []),
        ("a.txt", ["a.txt"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, expected: list[str]):
    glob = Glob(pattern)
    assert [key for key in KEYS if glob.matches(key)] == expected
    assert all(key.startswith(glob.prefix) for key in expected)


@pytest.mark.parametrize("pattern", ["[a", "[]", "{a", "{a,{b}", "a\\", "[z-a]", "a" * 2000, "{a,b}" * 10])
def test_what_is_no_pattern(pattern: str):
    with pytest.raises(Invalid, match="matchGlob"):
        Glob(pattern)


@pytest.mark.parametrize(
    "pattern", ["*a" * 50 + "b", "**a" * 50 + "b", "{*a,**b}" * 6 + "c", "**/" * 50 + "b"]
)
def test_no_pattern_takes_long(pattern: str):
    glob, began = Glob(pattern), time.process_time()
    assert not glob.matches("a/" * 500 + "a" * 1000)
    assert time.process_time() - began < 2


def test_a_list(service, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    with storage.Client(project="any") as client:
        bucket = client.bucket("globs")
        for number in range(30):
            bucket.blob(f"d/{number:02}.{'csv' if number % 10 else 'txt'}").upload_from_string("x")
        names = ["d/00.txt", "d/10.txt", "d/20.txt"]
        assert [blob.name for blob in client.list_blobs(bucket, match_glob="d/*.txt")] == names
        assert [blob.name for blob in client.list_blobs(bucket, match_glob="**/*.txt", page_size=2)] == names
        assert [blob.name for blob in client.list_blobs(bucket, prefix="d/1", match_glob="**.txt")] == names[
            1:2
        ]
        assert [blob.name for blob in client.list_blobs(bucket, match_glob="**.txt", max_results=2)] == names[
            :2
        ]
        directories: Any = client.list_blobs(bucket, match_glob="*", delimiter="/")
        assert (list(directories), directories.prefixes) == ([], {"d/"})
