"""Transfers from a real S3 server."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runner.stager.stager_process import Stager, files, store
from tests.stores import READER, S3, faulty_proxy
from turnout.runner.stager.files import TargetDirectory

BIG = 40 << 20


def test_all_below_a_prefix_becomes_files(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    for key in ("data/a", "data/sub/b", "data/sub/with space+%20#ü", "other"):
        store(backing).put(key, key.encode())
    done = stager.move("in", {"backing": backing, "prefix": "data/", "to": str(place)})
    assert done["files"] == 3
    assert files(place) == {
        "a": b"data/a",
        "sub/b": b"data/sub/b",
        "sub/with space+%20#ü": "data/sub/with space+%20#ü".encode(),
    }
    assert sorted(os.listdir(place)) == ["a", "sub"]


def test_a_single_object_becomes_a_file_with_its_time(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    store(backing).put("code/train.py", b"print()")
    stager.move("in", {"backing": backing, "prefix": "code/train.py", "to": str(place)})
    assert files(place) == {"train.py": b"print()"}
    modified = store(backing).head("code/train.py")["last_modified"]
    assert (place / "train.py").stat().st_mtime == modified.timestamp()


def test_a_directory_needs_no_slash(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    store(backing).put("data/a", b"1")
    store(backing).put("data-2/a", b"2")
    stager.move("in", {"backing": backing, "prefix": "data", "to": str(place)})
    assert files(place) == {"a": b"1"}


def test_an_empty_file_and_nothing_at_all(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    nothing = {"backing": backing, "prefix": "none/", "to": str(place)}
    assert "there is no object" in stager.fail("in", nothing)
    assert stager.move("in", nothing | {"optional": True})["files"] == 0
    store(backing).put("some/empty", b"")
    stager.move("in", {"backing": backing, "prefix": "some/", "to": str(place)})
    assert files(place) == {"empty": b""}


def test_a_file_that_is_up_to_date_is_not_fetched_again(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    for name in ("a", "b", "c", "d"):
        store(backing).put(name, name.encode())
    item = {"backing": backing, "to": str(place), "state": str(place.parent / "state")}
    assert stager.move("in", item)["files"] == 4
    assert stager.move("in", item)["files"] == 0
    store(backing).put("a", b"new in the store")
    (place / "b").write_bytes(b"x")
    (place / "c").unlink()
    assert stager.move("in", item)["files"] == 3
    assert files(place) == {"a": b"new in the store", "b": b"b", "c": b"c", "d": b"d"}


@pytest.mark.parametrize("size", [BIG, (8 << 20) + 1, 16 << 20])
def test_a_big_object_comes_in_pieces(s3: S3, stager: Stager, place: Path, size: int) -> None:
    backing, data = s3.backing(), os.urandom(size)
    store(backing).put("big", data)
    stager.move("in", {"backing": backing, "prefix": "big", "to": str(place)})
    assert files(place) == {"big": data}


def test_broken_connections_are_resumed(s3: S3, stager: Stager, place: Path) -> None:
    backing, data = s3.backing(), os.urandom(BIG)
    store(backing).put("big", data)
    store(backing).put("small", data[:1000000])
    with faulty_proxy(s3.port, cut=5, after=500000) as cut:
        stager.move(
            "in", {"backing": backing | {"endpoint": f"http://127.0.0.1:{cut.port}"}, "to": str(place)}
        )
        assert cut.cut == 0
    assert files(place) == {"big": data, "small": data[:1000000]}


def test_a_store_that_is_busy_for_a_while(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    for number in range(20):
        store(backing).put(f"data/{number}", b"x" * number)
    with faulty_proxy(s3.port, refuse=6) as busy:
        stager.move(
            "in", {"backing": backing | {"endpoint": f"http://127.0.0.1:{busy.port}"}, "to": str(place)}
        )
    assert len(files(place)) == 20


def test_a_store_that_stays_busy(s3: S3, place: Path) -> None:
    with faulty_proxy(s3.port, refuse=10000) as busy, Stager(patience=1) as stager:
        said = stager.fail(
            "in", {"backing": s3.backing("some", port=busy.port), "prefix": "a", "to": str(place)}
        )
    assert said.startswith("s3://some/a: the store answers 503; tried for ")


def test_no_server_listens(s3: S3, place: Path) -> None:
    with faulty_proxy(s3.port) as gone:
        pass
    with Stager(patience=1) as stager:
        said = stager.fail(
            "in", {"backing": s3.backing("some", port=gone.port), "prefix": "a", "to": str(place)}
        )
    assert f"s3://some/a: cannot connect to http://127.0.0.1:{gone.port}" in said


def test_refusals_name_the_url_and_no_secret(s3: S3, stager: Stager, place: Path) -> None:
    item = {"prefix": "a/", "to": str(place)}
    missing = stager.fail("in", item | {"backing": s3.backing("no-such-bucket")})
    assert missing == "s3://no-such-bucket/a/: there is no such bucket"
    wrong = s3.backing(keys=("access-id", "not the secret"))
    refused = stager.fail("in", item | {"backing": wrong, "url": "cos://mine/a/"})
    assert refused == "cos://mine/a/: access denied by the store (403 SignatureDoesNotMatch)"
    assert stager.move("in", item | {"backing": s3.backing(keys=READER), "optional": True})["files"] == 0


def test_a_key_that_is_a_file_and_a_directory(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    store(backing).put("a", b"file")
    (place / "a").mkdir()
    (place / "a" / "b").write_bytes(b"")
    said = stager.fail("in", {"backing": backing, "to": str(place)})
    assert "both a file and a directory" in said
    assert str(place / "a") in said


def test_a_link_on_the_way_is_not_followed(s3: S3, stager: Stager, place: Path, tmp_path: Path) -> None:
    backing = s3.backing()
    store(backing).put("sub/a", b"from the store")
    (tmp_path / "elsewhere").mkdir()
    (place / "sub").symlink_to(tmp_path / "elsewhere")
    assert "or a symbolic link" in stager.fail("in", {"backing": backing, "to": str(place)})
    assert not os.listdir(tmp_path / "elsewhere")


def test_a_link_in_place_of_a_file_is_replaced(s3: S3, stager: Stager, place: Path, tmp_path: Path) -> None:
    backing = s3.backing()
    store(backing).put("a", b"from the store")
    (tmp_path / "precious").write_bytes(b"precious")
    (place / "a").symlink_to(tmp_path / "precious")
    stager.move("in", {"backing": backing, "to": str(place)})
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (place / "a").is_symlink()
    assert files(place) == {"a": b"from the store"}


def test_kill_in_the_middle_and_again(s3: S3, place: Path) -> None:
    """Complete pieces are kept, the rest is fetched, and the file gets its name only at the end."""
    backing, data = s3.backing(), os.urandom(BIG)
    store(backing).put("big", data)
    item = {"prefix": "big", "to": str(place), "state": str(place.parent / "state")}
    with faulty_proxy(s3.port, after=10 << 20) as slow, Stager() as stager:
        stager.begin("in", item | {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}})
        assert slow.reached.wait(30)
        slow.flowing.clear()
        stager.await_bytes()
        stager.kill()
    assert "big" not in os.listdir(place)
    with Stager() as stager:
        done = stager.move("in", item | {"backing": backing})
    assert 0 < done["bytes"] < BIG
    assert files(place) == {"big": data}


def test_an_object_that_is_replaced_meanwhile(s3: S3, place: Path) -> None:
    """A file never has data of both objects."""
    backing, old, new = s3.backing(), os.urandom(BIG), os.urandom(BIG)
    store(backing).put("big", old)
    with faulty_proxy(s3.port, after=10 << 20) as slow, Stager() as stager:
        stager.begin(
            "in", {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}, "to": str(place)}
        )
        assert slow.reached.wait(30)
        slow.flowing.clear()
        store(backing).put("big", new)
        slow.flowing.set()
        assert "done" in stager.receive()
    assert files(place) == {"big": new} or files(place) == {"big": old}


def test_cancelled(s3: S3, place: Path) -> None:
    backing = s3.backing()
    store(backing).put("big", os.urandom(BIG))
    with faulty_proxy(s3.port, after=1 << 20) as slow, Stager() as stager:
        order = stager.begin(
            "in", {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}, "to": str(place)}
        )
        assert slow.reached.wait(30)
        slow.flowing.clear()
        stager.send({"id": order, "cancel": True})
        assert stager.receive() == {"id": order, "cancelled": True}
    assert "big" not in os.listdir(place)


def test_close_waits_for_threads_that_write_and_turns_later_ones_away(place: Path) -> None:
    target, begun, go_on = TargetDirectory(str(place), "tag"), threading.Event(), threading.Event()

    def write() -> None:
        with target.used() as used:
            begun.set()
            assert used
            assert go_on.wait(30)
            target.write(("a",), b"whole", 0)

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write)
        assert begun.wait(30)
        closing = threads.submit(target.close, False)
        with pytest.raises(TimeoutError):
            closing.result(0.1)
        with target.used() as used:
            assert not used
        go_on.set()
        writing.result(30)
        closing.result(30)
    assert files(place) == {"a": b"whole"}
