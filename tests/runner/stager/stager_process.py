"""The mover as the service sees it: a process, lines in, lines out."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.running import python_path
from turnout.storage.remote import Backing, open_store

SEALED = """
import sys
import turnout.runner.stage.__main__ as stage

class Sealed:
    def find_spec(self, name, *_):
        raise ImportError(f"{name} is imported too late: another user may not be able to read it")

def become(hello, really=stage._become):
    really(hello)
    sys.meta_path[:] = [Sealed()]

stage._become = become
stage.main()
"""
"""The mover, but nothing can be imported any more once it has become whom it works for."""


class Mover:
    def __init__(self, **hello: float) -> None:
        self._hello = hello
        self._last = 0
        self.progress: list[dict[str, int]] = []

    def __enter__(self) -> "Mover":
        environment = os.environ | {"PYTHONPATH": python_path()}
        command = [sys.executable, "-c", SEALED]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.send({"patience": 20} | self._hello)
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

    def hear(self) -> dict[str, Any]:
        """The next line that is not about progress."""
        assert self.process.stdout
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if "progress" not in answer:
                return answer
            self.progress.append(answer["progress"])
        raise AssertionError("the mover is gone")

    def await_bytes(self) -> None:
        """Until it says that some have been moved."""
        assert self.process.stdout
        while not json.loads(self.process.stdout.readline())["progress"]["bytes"]:
            pass

    def move(self, do: str, *items: dict[str, Any], **more: Any) -> dict[str, Any]:
        """What was done."""
        order = self.begin(do, *items, **more)
        answer = self.hear()
        assert answer["id"] == order
        assert "done" in answer, answer
        return answer["done"]

    def fail(self, do: str, *items: dict[str, Any], **more: Any) -> str:
        """Why it could not be done."""
        self.begin(do, *items, **more)
        return self.hear()["failed"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def most_memory(self) -> int:
        """In MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def store(backing: dict[str, Any]):
    return open_store(msgspec.convert(backing, Backing))


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
