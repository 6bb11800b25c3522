"""Sealed logs: appending, random access, and dropping the middle."""

import errno
import os
from pathlib import Path

import pytest

from turnout.vault import KeyGone, KeyRing
from turnout.vault import frames as module
from turnout.vault.frames import FRAMES, SEALED, FrameReader, FrameWriter

NAME = "k"
MIB = 1 << 20


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    (tmp_path / "key").write_bytes(b"\1" * 32)
    return KeyRing({NAME: str(tmp_path / "key")})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "stdout")


def test_it_is_read_while_it_grows(ring: KeyRing, path: str):
    frames, log = FrameWriter(path, ring.new(NAME), MIB), FrameReader(path, ring)
    assert (log.size(), log.read(0, 10), log.hole()) == (0, b"", None)
    frames.put(b"first line\n")
    assert (log.size(), log.read(0, 100)) == (11, b"first line\n")
    frames.put(b"second\n")
    frames.put(b"third\n")
    assert log.read(0, 100) == b"first line\nsecond\nthird\n"
    assert log.read(6, 12) == b"line\nsecond\n"
    assert log.read(18, 6) == b"third\n"
    assert log.read(24, 6) == b""
    assert b"line" not in Path(path + SEALED).read_bytes()


def test_a_missing_log_is_empty(ring: KeyRing, path: str):
    log = FrameReader(path, ring)
    assert (log.size(), log.read(0, 10), log.hole()) == (0, b"", None)


def test_a_new_writer_continues_after_a_kill(ring: KeyRing, path: str):
    key, log = ring.new(NAME), FrameReader(path, ring)
    first = FrameWriter(path, key, MIB)
    first.put(b"first\n")
    with open(path + SEALED, "ab") as file:
        file.write(b"a frame that does not count")
    again = FrameWriter(path, key, MIB)
    assert again.size == len(b"first\n")
    again.put(b"second\n")
    again.put(b"third\n")
    assert log.read(0, 100) == b"first\nsecond\nthird\n"


def test_beyond_its_limit_it_drops_its_middle(ring: KeyRing, path: str):
    frames, log = FrameWriter(path, ring.new(NAME), 4 * MIB), FrameReader(path, ring)
    whole = b"".join(b"%09d\n" % number for number in range(800_000))
    trimmed = 0
    for at in range(0, len(whole), 100_000):
        frames.put(whole[at : at + 100_000])
        trimmed += frames.trim()
    assert trimmed
    hole = log.hole()
    assert hole is not None
    begin, end = hole
    assert MIB <= begin < end <= len(whole) - 2 * MIB
    assert log.read(0, 2 * MIB) == whole[:begin]
    assert log.read(begin, 100) == b""
    assert log.read(end, len(whole)) == whole[end:]
    assert log.size() == len(whole)
    assert os.stat(path + SEALED).st_blocks * 512 < 6 * MIB


def test_the_log_ends_before_a_torn_frame(ring: KeyRing, path: str):
    frames, log = FrameWriter(path, ring.new(NAME), MIB), FrameReader(path, ring)
    frames.put(b"whole\n")
    frames.put(b"torn\n")
    os.truncate(path + SEALED, os.stat(path + SEALED).st_size - 3)
    assert log.read(0, 100) == b"whole\n"
    os.truncate(path + FRAMES, os.stat(path + FRAMES).st_size - 3)
    assert log.size() == len(b"whole\n")


def test_it_continues_after_a_full_disk(ring: KeyRing, path: str, monkeypatch: pytest.MonkeyPatch):
    frames, log = FrameWriter(path, ring.new(NAME), MIB), FrameReader(path, ring)
    frames.put(b"before\n")

    def full(file: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_write_all", full)
        with pytest.raises(OSError, match="full"):
            frames.put(b"later\n")
    assert frames.waiting == len(b"later\n")
    frames.put(b"")
    frames.put(b"after\n")
    assert log.read(0, 100) == b"before\nlater\nafter\n"


def test_without_its_key_it_is_unreadable(ring: KeyRing, path: str, tmp_path: Path):
    FrameWriter(path, ring.new(NAME), MIB).put(b"x\n")
    (tmp_path / "key").unlink()
    log = FrameReader(path, ring)
    assert log.size() == 2
    with pytest.raises(KeyGone):
        log.read(0, 2)
