"""A new version reads the files of an earlier one."""

import struct
import time
from pathlib import Path

from tests.running import running

NANOSECONDS = 10**9


def as_the_first_did(data: Path, now: int) -> Path:
    """It had a directory for each attempt and in it one for each replica; a mark was three numbers."""
    attempts = data / "attempts"
    (new,) = (place for place in attempts.iterdir() if place.name[0].isdigit())
    attempt, _, replica = new.name.partition("_")
    old = attempts / attempt / replica
    old.mkdir(parents=True)
    lines = [b"one\n", b"two\n", "drei Züge\n".encode()]
    (old / "stdout").write_bytes(b"".join(lines))
    (old / "stderr").write_bytes(b"and a word of warning\n")
    sizes = [sum(map(len, lines[: count + 1])) for count in range(3)]
    marks = [struct.pack("<QQQ", now + count, size, 0) for count, size in enumerate(sizes)]
    marks.append(struct.pack("<QQQ", now + 3, sizes[-1], len(b"and a word of warning\n")))
    (old / "marks").write_bytes(b"".join(marks))
    for path in (attempts / attempt, old, *old.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in new.iterdir():
        if path.is_file():
            path.unlink()
    new.rename(attempts.parent / "moved away")
    return attempts / attempt


def test_logs_of_the_first_version_are_shown_and_deleted_with_their_job():
    with running() as service:
        service.start()
        service.create("old", "echo", "this was written by the present one")
        service.wait("old")
        service.terminate()
        place = as_the_first_did(service.data, time.time_ns() - NANOSECONDS)
        service.start()
        assert [line.Log for line in service.logs("old")] == [
            "one",
            "two",
            "drei Züge",
            "and a word of warning",
        ]
        service.delete("old")
        deadline = time.monotonic() + 30
        while place.exists():
            assert time.monotonic() < deadline, "the logs of a deleted job stay"
            time.sleep(0.05)
