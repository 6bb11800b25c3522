"""Transfers to a real S3 server."""

import os
import threading
import time
from pathlib import Path

from tests.runner.stager.stager_process import Stager, content, files, keys, store
from tests.stores import READER, S3, faulty_proxy

BIG = 40 << 20


def long_ago(path: Path) -> None:
    """Set its time back, so that it does not count as being written."""
    os.utime(path, (time.time() - 60, time.time() - 60))


def test_a_tree_becomes_objects_and_only_changes_follow(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    (place / "sub").mkdir()
    for name in ("a", "sub/b", "sub/with space+%20#ü", "empty"):
        (place / name).write_text("" if name == "empty" else name)
    item = {"backing": backing, "prefix": "out/", "from": str(place), "state": str(place.parent / "state")}
    assert stager.move("out", item)["files"] == 4
    assert keys(backing) == {"out/a", "out/sub/b", "out/sub/with space+%20#ü", "out/empty"}
    assert stager.move("out", item)["files"] == 0
    (place / "a").write_text("changed")
    (place / "sub" / "b").unlink()
    assert stager.move("out", item)["files"] == 1
    assert content(backing, "out/a") == b"changed"
    assert content(backing, "out/sub/b") == b"sub/b", "deletions stay here"


def test_an_unchanged_input_is_not_uploaded(s3: S3, stager: Stager, place: Path) -> None:
    backing, state = s3.backing(), str(place.parent / "state")
    for name in ("a", "b"):
        store(backing).put(f"data/{name}", name.encode())
    stager.move("in", {"backing": backing, "prefix": "data/", "to": str(place), "state": state})
    (place / "b").write_bytes(b"by the job")
    out = {"backing": backing, "prefix": "data/", "from": str(place), "state": state}
    assert stager.move("out", out)["files"] == 1
    assert content(backing, "data/b") == b"by the job"


def test_a_file_that_is_being_written_waits(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    (place / "old").write_text("1")
    long_ago(place / "old")
    item = {"backing": backing, "from": str(place), "state": str(place.parent / "state")}
    assert stager.move("out", item, final=False)["files"] == 1
    (place / "new").write_text("2")
    done = stager.move("out", item, final=False)
    assert (done["files"], done["waiting"]) == (0, 1)
    assert keys(backing) == {"old"}
    stager.move("out", item, final=True)
    assert keys(backing) == {"old", "new"}


def test_a_log_that_grows_goes_out_as_it_is(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    (place / "stdout").write_text("one line\n")
    item = {"backing": backing, "prefix": "logs/job-1.log", "from": str(place / "stdout"), "growing": True}
    stager.move("out", item, final=False)
    assert content(backing, "logs/job-1.log") == b"one line\n"


def test_links_are_not_followed(s3: S3, stager: Stager, place: Path, tmp_path: Path) -> None:
    backing = s3.backing()
    (tmp_path / "secret").write_text("of another")
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "up").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")
    (place / "a\nb").write_text("no key can be called that")
    (place / "fine").write_text("1")
    done = stager.move("out", {"backing": backing, "from": str(place)})
    assert keys(backing) == {"fine"}
    assert len(done["warnings"]) == 4
    assert "link is skipped: it is a symbolic link" in done["warnings"]


def test_a_big_file_goes_out_in_parts_and_comes_back(
    s3: S3, stager: Stager, place: Path, tmp_path: Path
) -> None:
    backing = s3.backing()
    (place / "big").write_bytes(os.urandom(BIG + 1))
    stager.move("out", {"backing": backing, "from": str(place)})
    assert "-" in (store(backing).head("big")["e_tag"] or ""), "so it was in parts"
    (tmp_path / "back").mkdir()
    stager.move("in", {"backing": backing, "to": str(tmp_path / "back")})
    assert files(tmp_path / "back") == files(place)


def test_broken_connections_and_a_busy_store(s3: S3, stager: Stager, place: Path) -> None:
    backing = s3.backing()
    (place / "big").write_bytes(os.urandom(BIG))
    for number in range(20):
        (place / f"{number}").write_bytes(b"x" * 300000)
    with faulty_proxy(s3.port, refuse=10, cut=5, after=200000, upwards=True) as bad:
        stager.move(
            "out", {"backing": backing | {"endpoint": f"http://127.0.0.1:{bad.port}"}, "from": str(place)}
        )
        assert (bad.refuse, bad.cut) == (0, 0)
    assert {key: content(backing, key) for key in keys(backing)} == files(place)


def test_no_permission(s3: S3, stager: Stager, place: Path) -> None:
    (place / "a").write_text("1")
    backing = s3.backing(keys=READER)
    said = stager.fail("out", {"backing": backing, "url": "obs://mine/", "from": str(place)})
    assert said == "obs://mine/a: access denied by the store (403 AccessDenied)"


def test_kill_in_the_middle_and_again(s3: S3, place: Path) -> None:
    backing = s3.backing()
    (place / "big").write_bytes(os.urandom(BIG))
    for number in range(5):
        (place / f"{number}").write_bytes(os.urandom(1000))
    item = {"from": str(place), "state": str(place.parent / "state")}
    with faulty_proxy(s3.port, after=5 << 20, upwards=True) as slow, Stager() as stager:
        stager.begin("out", item | {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}})
        assert slow.reached.wait(30)
        slow.flowing.clear()
        stager.kill()
    assert "big" not in keys(backing)
    with Stager() as stager:
        stager.move("out", item | {"backing": backing})
        assert stager.move("out", item | {"backing": backing})["files"] == 0
    assert {key: content(backing, key) for key in keys(backing)} == files(place)


def test_a_cancelled_upload_leaves_nothing(s3: S3, place: Path) -> None:
    backing = s3.backing()
    (place / "big").touch()
    os.truncate(
        place / "big", 10 * BIG
    )  # so large that the cancellation arrives before its last part is sent
    before = s3.unfinished_uploads()
    with faulty_proxy(s3.port, after=5 << 20, upwards=True) as slow, Stager() as stager:
        order = stager.begin(
            "out", {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}, "from": str(place)}
        )
        assert slow.reached.wait(30)
        stager.send({"id": order, "cancel": True})
        assert stager.receive() == {"id": order, "cancelled": True}
    assert keys(backing) == set()
    assert s3.unfinished_uploads() == before


def test_a_file_that_changes_while_it_is_read_is_not_uploaded(s3: S3, place: Path) -> None:
    backing = s3.backing()
    big = place / "big"
    big.write_bytes(os.urandom(BIG))
    long_ago(big)
    item = {"from": str(place), "state": str(place.parent / "state")}
    with faulty_proxy(s3.port, after=5 << 20, upwards=True) as slow, Stager() as stager:
        stager.begin(
            "out", item | {"backing": backing | {"endpoint": f"http://127.0.0.1:{slow.port}"}}, final=False
        )
        assert slow.reached.wait(30)
        slow.flowing.clear()
        with big.open("r+b") as file:
            file.write(b"changed")
        slow.flowing.set()
        assert stager.receive()["done"]["waiting"] == 1
    assert keys(backing) == set()
    with Stager() as stager:
        stager.move("out", item | {"backing": backing})
    assert content(backing, "big") == big.read_bytes()


def test_orders_run_side_by_side(s3: S3, place: Path) -> None:
    """A slow store does not delay other orders."""
    here, there = s3.backing(), s3.backing()
    (place / "a").write_text("1")
    with faulty_proxy(s3.port) as slow, Stager() as stager:
        slow.flowing.clear()
        slow_backing = there | {"endpoint": f"http://127.0.0.1:{slow.port}"}
        first = stager.begin("out", {"backing": slow_backing, "from": str(place)})
        second = stager.begin("out", {"backing": here, "from": str(place)})
        assert stager.receive()["id"] == second
        threading.Timer(0, slow.flowing.set).start()
        assert stager.receive()["id"] == first
