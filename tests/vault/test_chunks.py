"""Sealed files: read whole and in parts, and tampered with."""

import os
from pathlib import Path

import pytest

from turnout.vault import KeyGone, KeyRing
from turnout.vault.chunks import CHUNK, SealedReader, SealedWriter, read_layout

NAME = "k"


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    (tmp_path / "key").write_bytes(b"\1" * 32)
    return KeyRing({NAME: str(tmp_path / "key")})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "object"


SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7]


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_file_and_any_part_can_be_read(ring: KeyRing, path: Path, size: int):
    data = _data(size)
    _seal(ring, path, data)
    with path.open("rb") as file:
        found = read_layout(file.fileno(), path.stat().st_size)
        assert found is not None
        assert found.size == size
        opened = SealedReader(file.fileno(), ring)
        assert opened.pread(size + 1, 0) == data
        for begin, end in ((0, 1), (5, 70_000), (CHUNK - 1, CHUNK + 1), (CHUNK, 2 * CHUNK), (size, size + 5)):
            assert opened.pread(end - begin, begin) == data[begin:end]


def test_the_file_has_no_plain_text(ring: KeyRing, path: Path):
    _seal(ring, path, b"marker " * 50_000)
    assert b"marker" not in path.read_bytes()


def test_an_ordinary_file_has_no_shape(path: Path):
    path.write_bytes(b"ordinary")
    with path.open("rb") as file:
        assert read_layout(file.fileno(), 8) is None


def test_a_file_truncated_at_a_chunk_is_detected(ring: KeyRing, path: Path):
    data = _data(2 * CHUNK)
    _seal(ring, path, data)
    os.truncate(path, path.stat().st_size - CHUNK - 16)
    with path.open("rb") as file, pytest.raises(KeyGone, match="was changed"):
        SealedReader(file.fileno(), ring).pread(CHUNK, 0)


def test_swapped_chunks_are_detected(ring: KeyRing, path: Path):
    _seal(ring, path, _data(3 * CHUNK))
    content = bytearray(path.read_bytes())
    begin, step = len(content) - 3 * (CHUNK + 16), CHUNK + 16
    content[begin : begin + 2 * step] = (
        content[begin + step : begin + 2 * step] + content[begin : begin + step]
    )
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(KeyGone, match="was changed"):
        SealedReader(file.fileno(), ring).pread(1, 0)


def test_its_size_can_be_read_without_the_key(ring: KeyRing, path: Path, tmp_path: Path):
    _seal(ring, path, b"x" * 1000)
    (tmp_path / "key").unlink()
    with path.open("rb") as file:
        found = read_layout(file.fileno(), path.stat().st_size)
        assert found is not None
        assert found.size == 1000
        with pytest.raises(KeyGone):
            SealedReader(file.fileno(), ring)


def _seal(ring: KeyRing, path: Path, data: bytes) -> None:
    sealing = SealedWriter(ring.new(NAME))
    with path.open("wb") as file:
        file.write(sealing.begin)
        for at in range(0, len(data), 50_000):
            file.write(sealing.add(data[at : at + 50_000]))
        file.write(sealing.finish())


def _data(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))
