"""The thread that removes files of jobs continues, whatever fails."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnout.engines.local.cleanup import trash
from turnout.engines.local.cleanup.trash import Trash
from turnout.runner.supervisor.disk.remove import remove
from turnout.runner.supervisor.replicas.spares import GONE


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trash, "_BATCH_SECONDS", 0.001)


class Removed:
    """Records what was removed, by name. Removing the names in `bad` fails."""

    def __init__(self, bad: dict[str, Exception]) -> None:
        self._bad = bad
        self._names: set[str] = set()
        self._more = threading.Condition()

    def __call__(self, name: str, above: int) -> None:
        if name in self._bad:
            raise self._bad[name]
        remove(name, above)
        with self._more:
            self._names.add(name.rpartition("-")[2])
            self._more.notify_all()

    def wait(self, *names: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self._names >= set(names), 30), self._names


@pytest.fixture
def bad() -> dict[str, Exception]:
    return {}


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch, bad: dict[str, Exception]) -> Removed:
    one = Removed(bad)
    monkeypatch.setattr(trash, "remove", one)
    return one


def make_replica(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "stdout").write_text("hello")


def test_the_thread_survives_a_failing_sleep(
    tmp_path: Path, removed: Removed, monkeypatch: pytest.MonkeyPatch
):
    """time.sleep may fail when the clock is set, and a lock when memory is short."""
    failures = [
        OSError(22, "Invalid argument"),
        MemoryError(),
        RuntimeError("no"),
        OSError(22, "Invalid argument"),
    ]

    def sleep(seconds: float) -> None:
        if failures:
            raise failures.pop()
        time.sleep(seconds)

    fake = SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr(trash, "time", fake)
    make_replica(tmp_path / GONE, "1_master-0")
    one = Trash(tmp_path)
    one.start()
    removed.wait("0")
    assert failures == []
    make_replica(tmp_path, "2_master-1")
    one.remove({"2"})
    removed.wait("1")


def test_the_thread_survives_a_failing_wait(tmp_path: Path, removed: Removed):
    one = Trash(tmp_path)
    waited = one._work.wait
    failures = [RuntimeError("can't start"), OSError(12, "Cannot allocate memory")]

    def wait(timeout: float | None = None) -> bool:
        if failures:
            raise failures.pop()
        return waited(timeout)

    one._work.wait = wait
    make_replica(tmp_path, "3_worker-7")
    one.start()
    one.remove({"3"})
    removed.wait("7")
    assert failures == []


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), OSError(5, "Input/output error")])
def test_a_tree_that_cannot_be_removed_does_not_block_the_others(
    tmp_path: Path, removed: Removed, bad: dict[str, Exception], error: Exception
):
    names = [f"{number}_ps-{number}" for number in range(9)]
    make_replica(tmp_path / GONE, *names)
    bad[names[4]] = error
    Trash(tmp_path).start()
    removed.wait(*"01235678")
    assert (tmp_path / GONE / names[4]).exists()


def test_an_unreadable_directory_does_not_block_the_others(tmp_path: Path, removed: Removed):
    (tmp_path / "attempts").write_text("this is no directory")
    make_replica(tmp_path / "copies", "1_master-0")
    one = Trash(tmp_path / "attempts", tmp_path / "copies")
    one.start()
    one.remove({"1"})
    removed.wait("0")


def test_many_requests_take_one_look_at_the_directory(
    tmp_path: Path, removed: Removed, monkeypatch: pytest.MonkeyPatch
):
    looks: list[int] = []
    move = trash._move_to_trash

    def counted(directory: Path, attempts: set[str]) -> None:
        looks.append(len(attempts))
        move(directory, attempts)

    monkeypatch.setattr(trash, "_move_to_trash", counted)
    make_replica(tmp_path, *(f"{number}_worker-{number}" for number in range(50)))
    one = Trash(tmp_path)
    for number in range(50):
        one.remove({str(number)})
    one.start()
    removed.wait(*map(str, range(50)))
    assert looks == [50]
