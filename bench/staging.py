"""Copies data to and from a real S3 server, compared with obstore alone and `rclone copy` on the same server."""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice, permutations
from pathlib import Path
from typing import Any

import msgspec

from bench.floor import Floor
from bench.table import Row, Table
from tests.stores import S3, seaweed
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

MEGABYTE = 1 << 20
AT_A_TIME = 16
SOURCES = Path(__file__).parent.parent / "src"

Move = Callable[[str, dict[str, Any], Path], None]
"""Direction, settings of the store, directory."""


def staging(table: Table, directory: Path, floor: Floor) -> None:
    many, big = (200, 256) if table.quick else (1000, 2048)
    # Out takes five times as long as in, which a moment of the machine can therefore change more.
    rounds = {"out": 1, "in": 1} if table.quick else {"out": 3, "in": 12}
    (directory / "store").mkdir()
    with seaweed(directory / "store") as server, stager() as ours:
        for name, count, size in (("many", many, 1), ("big", 1, big)):
            step = table.steps(f"staging {name}", 3 * sum(rounds.values()))
            made = directory / name
            _make(made, count, size)
            for do in ("out", "in"):
                _measure(table, server, made, do, rounds[do], ours, step)
        _foreign(table, server, directory / "many", rounds["in"], ours)
        table.add(
            Row(
                "staging memory",
                "memory of the mover after all that",
                ours.most_memory(),
                "MB",
                target=150,
                judged="measured",
            )
        )


def _measure(
    table: Table, server: S3, made: Path, do: str, rounds: int, ours: "Stager", step: Callable[[], None]
) -> None:
    """The contenders take turns, so that a slow moment of the machine affects all of them, and run in every order,
    because each one affects the memory that the next one gets."""
    contenders: dict[str, Move] = {"turnout": ours.move, "obstore": _obstore, "rclone": _rclone}
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    megabytes = sum(path.stat().st_size for path in made.iterdir()) / MEGABYTE
    filled = server.backing()
    if do == "in":
        ours.move("out", filled, made)
    for order in islice(cycle(permutations(contenders)), rounds):
        for name in order:
            seconds = _time(contenders[name], do, filled if do == "in" else server.backing(), made)
            speeds[name].append(megabytes / seconds)
            step()
    what = f"{do}, {len(list(made.iterdir()))} × {megabytes / len(list(made.iterdir())):.0f} MB"
    mine = statistics.median(speeds["turnout"])
    for name, target in (("obstore", 0.8), ("rclone", 1.0)):
        row = Row(
            f"staging {do} {made.name} {name}",
            f"staging {what}, to {name} alone" if name == "obstore" else f"staging {what}, to rclone copy",
            mine,
            "MB/s",
            statistics.median(speeds[name]),
            target=target,
            better="more",
        )
        table.add(row)


def _foreign(table: Table, server: S3, made: Path, rounds: int, ours: "Stager") -> None:
    """Objects of other programs have no checksum of Turnout's. Their ETag is an MD5, which is slow to verify."""
    filled = server.backing()
    _obstore("out", filled, made)
    megabytes = sum(path.stat().st_size for path in made.iterdir()) / MEGABYTE
    mine: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        mine.append(megabytes / _time(ours.move, "in", filled, made))
        bare.append(megabytes / _time(_obstore, "in", filled, made))
    what = "staging in, put by others (MD5 is verified), to obstore alone"
    table.add(
        Row(
            "staging in foreign",
            what,
            statistics.median(mine),
            "MB/s",
            statistics.median(bare),
            better="more",
        )
    )


def _time(move: Move, do: str, backing: dict[str, Any], made: Path) -> float:
    place = Path(tempfile.mkdtemp(prefix=f"{made.name}-in-", dir=made.parent)) if do == "in" else made
    os.sync()
    before = time.perf_counter()
    move(do, backing, place)
    seconds = time.perf_counter() - before
    if do == "in":
        if sorted(os.listdir(place)) != sorted(os.listdir(made)):
            raise AssertionError("not everything came")
        _empty(place)
    return seconds


def _empty(directory: Path) -> None:
    """Truncates the files instead of removing them: ext4 without a journal looks at every recently freed inode before
    it uses the next, which took up to a third of the time, and more for each later contender."""
    for path in directory.iterdir():
        os.truncate(path, 0)


class Stager:
    """Turnout's stager, as the service starts it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.send({})

    def send(self, message: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def move(self, do: str, backing: dict[str, Any], place: Path) -> None:
        item = {"backing": backing, "to" if do == "in" else "from": str(place)}
        self.send({"id": 1, "do": do, "items": [item]})
        assert self._process.stdout
        while "progress" in (answer := msgspec.json.decode(self._process.stdout.readline())):
            pass
        if "done" not in answer:
            raise RuntimeError(answer)

    def most_memory(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def stager() -> Iterator[Stager]:
    command = [sys.executable, "-m", "turnout.runner.stager"]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        yield Stager(process)


def _obstore(do: str, backing: dict[str, Any], place: Path) -> None:
    """obstore as its documentation shows, 16 at a time, without any check."""
    asyncio.run(_obstore_in(backing, place) if do == "in" else _obstore_out(backing, place))


async def _obstore_in(backing: dict[str, Any], place: Path) -> None:
    store = open_store(msgspec.convert(backing, RemoteSettings))
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(key: str) -> None:
        async with room:
            result = await store.get_async(key)
            with (place / key).open("wb") as file:
                async for data in result.stream():
                    file.write(data)

    async for chunk in store.list():
        await asyncio.gather(*(one(found["path"]) for found in chunk))


async def _obstore_out(backing: dict[str, Any], place: Path) -> None:
    store = open_store(msgspec.convert(backing, RemoteSettings))
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(path: Path) -> None:
        async with room:
            await store.put_async(path.name, path)

    await asyncio.gather(*(one(path) for path in place.iterdir()))


def _rclone(do: str, backing: dict[str, Any], place: Path) -> None:
    options = {
        "type": "s3",
        "provider": "Other",
        "endpoint": backing["endpoint"],
        "access_key_id": backing["key"],
        "secret_access_key": backing["secret"],
    }
    environment = {f"RCLONE_CONFIG_STORE_{name.upper()}": value for name, value in options.items()}
    there = "store:" + backing["url"].removeprefix("s3://")
    ways = [there, str(place)] if do == "in" else [str(place), there]
    command = [str(Path(sys.executable).with_name("rclone")), "copy", "--transfers", str(AT_A_TIME), *ways]
    subprocess.run(
        command,
        env=os.environ | environment | {"RCLONE_CONFIG": "/dev/null"},
        check=True,
        capture_output=True,
    )


def _make(directory: Path, count: int, megabytes: int) -> None:
    directory.mkdir()
    for number in range(count):
        with (directory / f"{number:04}").open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(MEGABYTE))
