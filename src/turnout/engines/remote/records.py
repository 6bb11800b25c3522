"""The records of attempts that a cluster runs: a file for each, with a line for each fact.

A fact is on disk before anybody can rely on it: a gang is recorded before it is submitted, and a replica before its
runner may start the program. So a service that was killed knows what may run, and grants no replica twice.
"""

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from turnout.job import Attempt, Cause, Launch

_log = logging.getLogger(__name__)

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Launched(msgspec.Struct, frozen=True, tag_field="fact", tag="launched"):
    launch: Launch
    token: str
    at: int = 0
    runner: str = ""
    """The SHA-256 of the runner that its nodes fetch."""


class Accepted(msgspec.Struct, frozen=True, tag_field="fact", tag="accepted"):
    """The cluster has the gang in its queue."""

    handle: str


class Claimed(msgspec.Struct, frozen=True, tag_field="fact", tag="claimed"):
    """This runner, and no other, runs the replica."""

    replica: str
    instance: str
    handle: str
    node: str = ""
    at: int = 0


class Arrival(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What a runner says of its node."""

    address: str
    ports: tuple[int, ...]
    home: str
    """The directory in which it works."""
    python: str = ""
    path: str = ""
    """The node's PATH."""
    sandbox: bool = False
    """Whether it can show mounts at their exact targets."""
    mounted: bool = False
    """Whether its container shows them there already."""
    host: str = ""
    """The name that the node itself has. The cluster may call it by another."""


class Arrived(msgspec.Struct, frozen=True, tag_field="fact", tag="arrived"):
    replica: str
    arrival: Arrival


class Began(msgspec.Struct, frozen=True, tag_field="fact", tag="began"):
    """The program has started."""

    replica: str
    restarts: int
    pid: int
    at: int


class Over(msgspec.Struct, frozen=True, tag_field="fact", tag="over"):
    """A start of the program has ended."""

    replica: str
    restarts: int
    at: int
    cause: Cause
    code: int | None = None
    signal: int | None = None
    message: str = ""
    runner_gone: bool = False
    """Nobody can start it again: its runner is gone, or was never there."""


class Again(msgspec.Struct, frozen=True, tag_field="fact", tag="again"):
    """The runner is told to start the program again."""

    replica: str
    restarts: int


class Stored(msgspec.Struct, frozen=True, tag_field="fact", tag="stored"):
    """The runner has saved the outputs, or could not."""

    replica: str
    files: int
    size: int
    trouble: str


Fact = Launched | Accepted | Claimed | Arrived | Began | Over | Again | Stored

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Fact).decode


class Record:
    """The file of one attempt. All calls block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, *facts: Fact) -> None:
        """On disk when it returns. Raises OSError."""
        lines = b"".join(_encode(fact) + b"\n" for fact in facts)
        fd = os.open(self._path, _FLAGS, 0o600)
        try:
            size = os.fstat(fd).st_size
            try:
                _write_whole(fd, lines)
                os.fdatasync(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        if not size:
            _sync_directory(self._path.parent)

    def read(self) -> list[Fact]:
        """A line that cannot be read is left out: a torn last line was never relied on."""
        facts: list[Fact] = []
        for number, line in enumerate(self._path.read_bytes().splitlines()):
            try:
                facts.append(_decode(line))
            except msgspec.DecodeError as error:
                _log.warning("%s: line %d cannot be read: %s", self._path, number + 1, error)
        return facts

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class Records:
    """The records of one cluster. All calls block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def of(self, attempt: Attempt) -> Record:
        return Record(self.directory / f"{attempt}.jsonl")

    def all(self) -> dict[Attempt, list[Fact]]:
        """The facts of each attempt whose launch can be read. Others are set aside and named in the log."""
        found: dict[Attempt, list[Fact]] = {}
        for path in sorted(self.directory.glob("*.jsonl")):
            facts = Record(path).read()
            if facts and isinstance(facts[0], Launched):
                found[facts[0].launch.attempt] = facts
            else:
                _log.error("%s does not say what was launched; it is set aside", path)
                path.rename(path.with_suffix(".bad"))
        return found


def needed_runners(directory: Path) -> set[str] | None:
    """The digests of the runners that the gangs of all clusters below may still fetch; None: one does not say."""
    found: set[str] = set()
    for path in directory.glob("*/*.jsonl"):
        with path.open("rb") as file:
            try:
                first = _decode(file.readline())
            except msgspec.DecodeError:
                return None
        if not isinstance(first, Launched) or not first.runner:
            return None
        found.add(first.runner)
    return found


def _write_whole(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
