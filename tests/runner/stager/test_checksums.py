"""Checksums of objects that arrive in pieces."""

import os
from pathlib import Path

import pytest

from turnout.runner.stager.checksums import Crcs, Expected, digest, expected, file_digest


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 5000, 5432])
def test_pieces_in_any_order_add_up(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    crcs = Crcs(1000)
    for number in (4, 0, 5, 2):  # the others are read from the file
        crcs.begin(number)
        for start in range(number * 1000, min(number * 1000 + 1000, size), 300):
            crcs.add(number, data[start : min(start + 300, number * 1000 + 1000)])
    with (tmp_path / "file").open("rb") as file:
        assert crcs.value(file.fileno(), size) == digest("crc32c", data)
        assert file_digest("md5", file.fileno(), size) == digest("md5", data)


def test_the_expected_checksum_comes_from_metadata_or_etag() -> None:
    md5 = "5d41402abc4b2a76b9719d911017c592"
    assert expected(f'"{md5}"', {}) == Expected("md5", md5)
    assert expected("XUFAKrxLKna5cZ2REBfFkg==", {}) == Expected("md5", md5)
    assert expected(f'"{md5}"', {"turnout-crc32c": "9a71bb4c"}) == Expected("crc32c", "9a71bb4c")
    assert expected(f'"{md5}-256"', {}).kind == ""
    assert digest("crc32c", b"hello") == "9a71bb4c"
