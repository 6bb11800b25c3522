"""Objects to files before the start, files to objects while the program runs and at its end."""

import base64
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from tests.runner.node.conftest import RunnerProcess, Start
from tests.runner.node.fake_gateway import TOKEN, Document, FakeGateway
from turnout.runner.node import checksum

MIB = 1 << 20


def mount(**fields: Any) -> Document:
    return {
        "number": 0,
        "directory": "copies/0",
        "fetch": False,
        "save": False,
        "period": 0,
        "optional": False,
        "url": "obs://bucket/dir/",
        "files": [],
        **fields,
    }


def shell_in_mount(script: str, **fields: Any) -> Callable[[Document], Document]:
    """A plan with one mount, in which a shell script runs."""
    return lambda arrival: {
        "argv": ["/bin/sh", "-c", script],
        "cwd": f"{arrival['home']}/copies/0",
        "mounts": [mount(**fields)],
    }


def save(runner: RunnerProcess) -> Document:
    runner.wait_for_end()
    before = len(runner.gateway.saved)
    runner.gateway.order("save")
    return runner.gateway.wait_for(lambda: runner.gateway.saved[before:])[0]


# Fetch.


@pytest.mark.parametrize("absolute", [False, True])
def test_inputs_are_there_before_the_start(absolute: bool, gateway: FakeGateway, start_runner: Start):
    gateway.absolute = absolute
    gateway.page = 3
    objects = {f"part-{number}": b"%d" % number * number for number in range(8)}
    gateway.objects[0] = {**objects, "deep/er/ü b?.txt": b"deep", "empty/": b""}
    gateway.etags["deep/er/ü b?.txt"] = f'"{hashlib.md5(b"deep").hexdigest()}"'
    gateway.plan = shell_in_mount(
        "find . | sort; cat part-* deep/er/*", fetch=True, files=["part-1", "deep/er/ü b?.txt"]
    )
    runner = start_runner()
    assert runner.finish() == 0
    names = [".", "./deep", "./deep/er", "./deep/er/ü b?.txt", "./empty", *(f"./{name}" for name in objects)]
    expected = "".join(f"{name}\n" for name in names).encode() + b"".join(objects.values()) + b"deep"
    assert bytes(gateway.logs[0]) == expected
    assert "secret-signature" not in runner.printed


def test_what_arrived_before_a_break_is_not_fetched_again(gateway: FakeGateway, start_runner: Start):
    data = os.urandom(4 * MIB)
    gateway.objects[0] = {"big": data}
    gateway.fault = lambda name, count: "half" if name == "GET big" and count < 4 else ""
    gateway.plan = shell_in_mount("md5sum < big", fetch=True)
    start_runner().finish()
    assert gateway.logs[0].split()[0].decode() == hashlib.md5(data).hexdigest()
    requested = [start for start, _ in gateway.named("GET big")]
    assert requested == sorted(set(requested))
    assert len(requested) == 4


def test_large_objects_come_in_ranges(gateway: FakeGateway, start_runner: Start):
    data = os.urandom(MIB) * 70
    gateway.objects[0] = {"big": data, "small": b"s"}
    gateway.etags["big"] = hashlib.md5(data).hexdigest()
    gateway.fault = lambda name, count: "half" if name == "GET big" and count in (2, 3) else ""
    gateway.plan = shell_in_mount("md5sum < big", fetch=True)
    start_runner().finish()
    assert gateway.logs[0].split()[0].decode() == hashlib.md5(data).hexdigest()
    requested = gateway.named("GET big")
    assert {16 * MIB * number for number in range(5)} <= {start for start, _ in requested}
    assert all(end - start <= 16 * MIB for start, end in requested)


def test_an_expired_request_is_renewed(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"a": b"a", "b": b"b"}
    gateway.fault = lambda name, count: "403" if name == "GET b" and count == 1 else ""
    gateway.plan = shell_in_mount("cat a b", fetch=True)
    start_runner().finish()
    assert bytes(gateway.logs[0]) == b"ab"
    assert len(gateway.named("stage")) == 2


def test_a_damaged_object_is_fetched_again(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"a": b"damaged"}
    gateway.etags["a"] = hashlib.md5(b"healthy").hexdigest()

    def heal(name: str, count: int) -> str:
        if name == "GET a" and count == 2:
            gateway.objects[0]["a"] = b"healthy"
        return ""

    gateway.fault = heal
    gateway.plan = shell_in_mount("cat a", fetch=True)
    start_runner().finish()
    assert bytes(gateway.logs[0]) == b"healthy"


def test_an_etag_that_only_looks_like_a_checksum_is_no_obstacle(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"a": b"data"}
    gateway.etags["a"] = "0123456789abcdef" * 2
    gateway.plan = shell_in_mount("cat a", fetch=True)
    start_runner().finish()
    assert bytes(gateway.logs[0]) == b"data"


def staging_failure(start_runner: Start, scratch: Path) -> str:
    runner = start_runner()
    end = runner.wait_for_end()
    assert (end["cause"], end["code"], end["signal"]) == ("staging", None, None)
    assert not runner.gateway.started
    [home] = scratch.iterdir()
    # Nothing that is incomplete has a name.
    assert not [path for path in (home / "copies").rglob("*") if path.is_file()]
    runner.finish()
    assert TOKEN not in end["message"]
    return end["message"]


def test_a_wrong_size_is_an_error(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.objects[0] = {"a": b"four"}
    gateway.sizes["a"] = 5
    gateway.plan = shell_in_mount("true", fetch=True)
    message = staging_failure(start_runner, scratch)
    assert message == "the object 'obs://bucket/dir/a' changed or was damaged each time it was fetched"


def test_a_missing_source_is_an_error(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.plan = shell_in_mount("true", fetch=True)
    assert staging_failure(start_runner, scratch) == "there is nothing at obs://bucket/dir/"


def test_an_optional_source_may_be_missing(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell_in_mount("ls; echo fine", fetch=True, optional=True)
    start_runner().finish()
    assert bytes(gateway.logs[0]) == b"fine\n"


def test_a_missing_file_is_named(gateway: FakeGateway, start_runner: Start, scratch: Path):
    gateway.objects[0] = {"empty/": b""}
    gateway.plan = shell_in_mount("true", fetch=True, files=["train.py"])
    assert staging_failure(start_runner, scratch) == "there is no file 'obs://bucket/dir/train.py'"


@pytest.mark.parametrize(
    "key", ["../evil", "a/../../evil", "/etc/evil", "a//b", "..", "a/./b", "evil\0", "x/.."], ids=repr
)
def test_a_hostile_key_is_refused(
    key: str, gateway: FakeGateway, start_runner: Start, scratch: Path, tmp_path: Path
):
    gateway.objects[0] = {key: b"evil"}
    gateway.plan = shell_in_mount("true", fetch=True)
    assert "has a name that no file can have" in staging_failure(start_runner, scratch)
    assert not list(tmp_path.rglob("evil*"))


def test_a_key_that_is_a_file_and_a_directory_is_an_error(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"a": b"1", "a/b": b"2"}
    gateway.plan = shell_in_mount("true", fetch=True)
    end = start_runner().wait_for_end()
    assert end["cause"] == "staging"
    assert "cannot be written to a file here" in end["message"]


def test_a_stop_interrupts_the_fetch(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"a": b"1"}
    gateway.fault = lambda name, count: "half" if name == "GET a" else ""
    gateway.plan = shell_in_mount("true", fetch=True)
    runner = start_runner()
    gateway.wait_for(lambda: gateway.named("stage"))
    gateway.order("stop", grace=1)
    assert runner.wait_for_end()["cause"] == "stopped"
    assert runner.finish() == 0


@pytest.mark.parametrize("data", [b"", b"123456789", os.urandom(5000)])
def test_crc32c_is_right(data: bytes, tmp_path: Path):
    (tmp_path / "file").write_bytes(data)
    text = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    with open(tmp_path / "file", "rb") as file:
        assert checksum.is_crc32c(file.fileno(), len(data), text)
        assert not checksum.is_crc32c(file.fileno(), len(data), "AAAAAB==")


# Save.


def test_only_what_is_new_or_changed_is_saved(gateway: FakeGateway, start_runner: Start):
    gateway.objects[0] = {"same": b"same", "changed": b"old", "removed": b"removed"}
    script = "echo new > changed; mkdir -p ckpt/1; echo model > ckpt/1/model; : > empty; rm removed"
    gateway.plan = shell_in_mount(script, fetch=True, save=True)
    runner = start_runner()
    assert save(runner) == {"files": 3, "bytes": 10, "trouble": ""}
    assert gateway.objects[0] == {
        "same": b"same",
        "changed": b"new\n",
        "removed": b"removed",
        "ckpt/1/model": b"model\n",
        "empty": b"",
    }
    # Again: nothing more to do, and the totals stay.
    assert save(runner) == {"files": 3, "bytes": 10, "trouble": ""}
    assert len([name for name, _ in gateway.calls if name.startswith("PUT")]) == 3
    runner.finish()


@pytest.mark.parametrize("fault", ["after", "503", "403"])
def test_a_broken_upload_is_repeated(fault: str, gateway: FakeGateway, start_runner: Start):
    gateway.fault = lambda name, count: fault if name == "PUT model" and count == 1 else ""
    gateway.plan = shell_in_mount("head -c 3000000 /dev/zero > model", save=True)
    runner = start_runner()
    assert save(runner) == {"files": 1, "bytes": 3000000, "trouble": ""}
    assert gateway.objects[0] == {"model": bytes(3000000)}


def test_links_are_never_followed(gateway: FakeGateway, start_runner: Start, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    script = f"ln -s {tmp_path}/secret link; ln -s {tmp_path} directory; mkfifo pipe; echo mine > file"
    gateway.plan = shell_in_mount(script, save=True)
    runner = start_runner()
    assert save(runner)["files"] == 1
    assert gateway.objects[0] == {"file": b"mine\n"}


def test_results_are_saved_while_the_program_runs(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell_in_mount("echo 1 > a; sleep 60", save=True, period=0.3)
    runner = start_runner()
    gateway.wait_for(lambda: gateway.objects.get(0))
    assert gateway.objects[0] == {"a": b"1\n"}
    gateway.order("stop", grace=0)
    assert save(runner)["files"] == 1


def test_a_file_that_is_written_waits_for_the_end(gateway: FakeGateway, start_runner: Start):
    script = "i=0; while [ $i -lt 30 ]; do echo x >> growing; echo $i > done-$i; i=$((i+1)); sleep 0.1; done"
    gateway.plan = shell_in_mount(script, save=True, period=0.2)
    runner = start_runner()
    gateway.wait_for(lambda: gateway.objects.get(0))
    assert "growing" not in gateway.objects[0]
    assert save(runner)["trouble"] == ""
    assert gateway.objects[0]["growing"] == b"x\n" * 30
    assert len(gateway.objects[0]) == 31
    assert len(gateway.named("PUT growing")) == 1


def test_a_file_that_changes_while_it_is_read_is_taken_again(
    gateway: FakeGateway, start_runner: Start, scratch: Path
):
    gateway.plan = shell_in_mount("head -c 8000000 /dev/zero > model", save=True)
    tried: list[int] = []

    def change(name: str, count: int) -> str:
        # When this is called, the runner is sending the file and has not sent its end yet.
        if name == "PUT model":
            [home] = scratch.iterdir()
            tried.append(count)
            if count == 1:
                with open(home / "copies/0/model", "r+b") as file:
                    file.seek(7_999_999)
                    file.write(b"!")
        return ""

    gateway.fault = change
    runner = start_runner()
    assert save(runner) == {"files": 1, "bytes": 8000000, "trouble": ""}
    assert gateway.objects[0]["model"] == bytes(7_999_999) + b"!"
    assert tried == [1, 2]
    assert len(gateway.named("PUT model")) == 1


def test_trouble_is_named(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell_in_mount("printf x > 'a\nb'; echo fine > fine", save=True)
    runner = start_runner()
    assert save(runner) == {
        "files": 1,
        "bytes": 5,
        "trouble": r"'a\nb' is not saved: an object cannot have this name",
    }


def test_a_save_without_mounts_is_acknowledged(gateway: FakeGateway, start_runner: Start):
    gateway.plan = lambda arrival: {"argv": ["true"]}
    assert save(start_runner()) == {"files": 0, "bytes": 0, "trouble": ""}


def test_a_terminated_runner_does_not_wait_for_a_save(gateway: FakeGateway, start_runner: Start):
    gateway.fault = lambda name, count: "503" if name == "PUT a" else ""
    gateway.plan = shell_in_mount("echo 1 > a", save=True)
    runner = start_runner()
    runner.wait_for_end()
    gateway.order("save")
    gateway.wait_for(lambda: any(body["op"] == "put" for body in gateway.named("stage")))
    begun = time.monotonic()
    runner.process.terminate()
    assert runner.wait() == 0
    assert time.monotonic() - begun < 5
