"""The stager as the service uses it: a process that reads and writes lines of JSON."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.running import python_path
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

STRICT_STAGER = """
import sys
import turnout.runner.stager.__main__ as stage

class NoImports:
    def find_spec(self, name, *_):
        raise ImportError(f"{name} is imported too late: another user may not be able to read it")

def drop_privileges(setup, really=stage.drop_privileges):
    really(setup)
    sys.meta_path[:] = [NoImports()]

stage.drop_privileges = drop_privileges
stage.main()
"""
"""The stager, but imports fail once it has dropped its privileges."""


class Stager:
    def __init__(self, **setup: float) -> None:
        self._setup = setup
        self._last = 0
        self.progress: list[dict[str, int]] = []

    def __enter__(self) -> "Stager":
        environment = os.environ | {"PYTHONPATH": python_path()}
        command = [sys.executable, "-c", STRICT_STAGER]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.send({"patience": 20} | self._setup)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def send(self, message: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, do: str, *items: dict[str, Any], **more: Any) -> int:
        self._last += 1
        self.send({"id": self._last, "do": do, "items": items} | more)
        return self._last

    def receive(self) -> dict[str, Any]:
        """The next reply without progress."""
        assert self.process.stdout
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if "progress" not in answer:
                return answer
            self.progress.append(answer["progress"])
        raise AssertionError("the stager has ended")

    def await_bytes(self) -> None:
        """Wait until the stager reports progress."""
        assert self.process.stdout
        while not json.loads(self.process.stdout.readline())["progress"]["bytes"]:
            pass

    def move(self, do: str, *items: dict[str, Any], **more: Any) -> dict[str, Any]:
        """The result of an order that succeeds."""
        order = self.begin(do, *items, **more)
        answer = self.receive()
        assert answer["id"] == order
        assert "done" in answer, answer
        return answer["done"]

    def fail(self, do: str, *items: dict[str, Any], **more: Any) -> str:
        """The message of an order that fails."""
        self.begin(do, *items, **more)
        return self.receive()["failed"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def most_memory(self) -> int:
        """In MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def store(backing: dict[str, Any]):
    return open_store(msgspec.convert(backing, RemoteSettings))


def keys(backing: dict[str, Any]) -> set[str]:
    return {one["path"] for chunk in store(backing).list() for one in chunk}


def content(backing: dict[str, Any], key: str) -> bytes:
    return bytes(store(backing).get(key).bytes())


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
