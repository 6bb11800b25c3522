# pyright: reportMissingImports=false
"""The actor of one replica: starts the runner and waits for it.

Ray sends this module with the actor, so a node needs no file of Turnout.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import shutil
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from typing import Any

Document = dict[str, Any]

GAVE_UP = 75
LONGEST_WORDS = 2000
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
FILES = "files"
"""The list of the files that belong to the runner."""
KEPT_SECONDS = 60 * 86400.0
NOT_INHERITED = ("RAY_", "PYTHON", "TURNOUT_")
CHECK_SECONDS = 15


class NotFetched(Exception):
    """The runner could not be fetched."""


class Replica:
    def __init__(self, call: Document) -> None:
        """`call`: see `requests.py`."""
        self._call = call
        self._ended: asyncio.Future[list[Any]] | None = None

    async def run(self) -> list[Any]:
        """Starts the runner, unless it was started, and returns its exit code and what it printed last.

        It may be called any number of times, by one bridge after the other.
        """
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            # The runner ends with the thread that started it, so that thread waits for it.
            threading.Thread(target=self._run, args=(asyncio.get_running_loop(),), daemon=True).start()
        return await asyncio.shield(self._ended)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            code, words = run_runner(self._call)
        except Exception as error:  # noqa: BLE001 (whatever it is, the job's end has to carry it)
            code, words = GAVE_UP, str(error) or type(error).__name__
        assert self._ended is not None
        loop.call_soon_threadsafe(self._ended.set_result, [code, words])


def run_runner(call: Document) -> tuple[int, str]:
    import ray

    runner = fetch(f"{call['endpoint']}/runner/v1/{call['digest']}.pyz", call["digest"], call["patience"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    environment.update(call["environment"])
    environment["TURNOUT_ADDRESS"] = ray.util.get_node_ip_address()
    command = [sys.executable, runner, call["endpoint"], call["address"]]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", call["launcher"], str(os.getpid()), *command],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ray may kill the group of this process.
            start_new_session=True,
        )
        code = process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - LONGEST_WORDS))
        return code, output.read().decode(errors="replace").strip()


def fetch(url: str, digest: str, patience: float) -> str:
    """The directory of the runner, kept for the next replica on this node. Compiled, it starts twice as fast."""
    path = os.path.join(cache(), f"runner-{digest}-{sys.implementation.cache_tag}")
    if is_whole(path):
        with contextlib.suppress(OSError):
            os.utime(path)  # it is used, so it is not old
        return path
    data = download(url, patience)
    if hashlib.sha256(data).hexdigest() != digest:
        raise NotFetched(f"{url} has another SHA-256 than the service announced")
    remove_old(os.path.dirname(path))
    return place(unpack(data, os.path.dirname(path)), path)


def unpack(data: bytes, directory: str) -> str:
    """A new directory with the runner in it."""
    import compileall  # only the first replica on a node needs it

    fresh = tempfile.mkdtemp(dir=directory)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(fresh)
        names = archive.namelist()
    compileall.compile_dir(fresh, quiet=2)
    with open(os.path.join(fresh, FILES), "w", encoding="utf-8") as file:
        file.write("\n".join(names))
    return fresh


def place(fresh: str, path: str) -> str:
    """Gives the new directory its name, unless another replica was faster. Returns where the runner is."""
    if os.path.isdir(path) and not is_whole(path):
        with contextlib.suppress(OSError):
            os.rename(path, tempfile.mkdtemp(dir=os.path.dirname(path)))  # a part of it is missing
    with contextlib.suppress(OSError):
        os.rename(fresh, path)
        return path
    if is_whole(path):
        shutil.rmtree(fresh, ignore_errors=True)
        return path
    return fresh


def remove_old(directory: str) -> None:
    """Removes runners of earlier versions and incomplete ones. Those that still run were used lately."""
    oldest = time.time() - KEPT_SECONDS
    for entry in os.scandir(directory):
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                shutil.rmtree(entry.path, ignore_errors=True)


def is_whole(path: str) -> bool:
    """Whether all files are there: a cleaner of /tmp may have removed some."""
    try:
        with open(os.path.join(path, FILES), encoding="utf-8") as file:
            return all(os.path.exists(os.path.join(path, name)) for name in file.read().split("\n"))
    except OSError:
        return False


def cache() -> str:
    """A directory to which nobody else can write: a new one if another user has taken the usual name. Slurm's nodes
    use another one, with files of their own.
    """
    path = os.path.join(tempfile.gettempdir(), f"turnout-ray-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return path if ours else tempfile.mkdtemp()


def download(url: str, patience: float) -> bytes:
    """Downloads the runner. Waits while the service is away."""
    end = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            with opener().open(url, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            trouble = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                raise NotFetched(f"{url} cannot be fetched: {trouble}") from None
        except Exception as error:  # noqa: BLE001 (whatever a broken connection raises, the next try may work)
            trouble = str(error)
        if time.monotonic() + pause > end:
            raise NotFetched(f"{url} cannot be fetched: {trouble}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def opener() -> urllib.request.OpenerDirector:
    """Does not check the certificate: the digest says whether it is the right file, and no secret is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    https = urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), https)


def reach(url: str) -> Document:
    """For `turnout cluster check`: describes the node, and says whether it reaches the service."""
    import json
    import platform

    import ray

    try:
        with opener().open(url, timeout=CHECK_SECONDS) as answer:
            trouble = "" if json.loads(answer.read()).get("turnout") else "something else answers"
    except Exception as error:  # noqa: BLE001 (any error is the answer)
        trouble = str(error) or type(error).__name__
    return {"node": ray.util.get_node_ip_address(), "python": platform.python_version(), "trouble": trouble}
