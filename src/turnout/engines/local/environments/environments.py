"""The environments on disk: makes each once, however many jobs ask for it, and removes those that nobody needs."""

import asyncio
import contextlib
import ctypes
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import msgspec

from turnout import chaos, config, pools
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.child import Child, ChildDied, ChildProgram, Closed
from turnout.config import RuntimeDefaults
from turnout.engines.local.environments.builder import Build, BuilderReply, BuilderSetup, uv_variables
from turnout.engines.local.environments.definition import Definition
from turnout.engines.local.environments.protection import protect
from turnout.engines.local.users.account import Accounts
from turnout.errors import TurnoutError
from turnout.runner.supervisor.disk.remove import remove

_C = ctypes.CDLL(None, use_errno=True)

PROGRAM = ChildProgram(
    "process that makes an environment", "turnout.engines.local.environments.builder", environment={}
)
_MAKING = ".making-"
_REMOVED = ".removed-"
_CACHE = ".cache"
_RECORD = ".turnout.json"
_SHIMS = ".shims"
_NOGROUP = 65534
_AGAIN_SECONDS = 600
"""After a failure, jobs that want the same fail with the same reason for this time."""

OnLine = Callable[[str], None]
"""Called with each line that says how far an environment is."""


class MakingFailed(TurnoutError):
    """The message says why, for the user of a job."""


class Record(msgspec.Struct):
    """What is kept beside a made environment. The file's time is that of its last use."""

    runtime: str
    """The first that it was made for."""
    lines: list[str]
    installed: list[str]
    python: str
    made: int
    seconds: float
    bytes: int


class Environments:
    """Makes one environment at a time. `make_seconds` of the settings limits how long each may take."""

    def __init__(self, directory: Path, accounts: Accounts, settings: RuntimeDefaults) -> None:
        self._directory = directory
        self._settings = settings
        self._accounts = accounts
        self._one_at_a_time = asyncio.Lock()
        self._making: dict[str, _Making] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._contents: dict[str, str] = {}
        self._child: Child[BuilderReply] | None = None
        self.uv = find_uv()

    def prepare(self) -> None:
        """Removes what a killed service left half-made. Blocks."""
        for name in os.listdir(self._directory):
            if name.startswith((_MAKING, _REMOVED)):
                with contextlib.suppress(OSError):
                    remove(str(self._directory / name))

    def path(self, definition: Definition) -> Path:
        return self._directory / definition.key

    def shims(self, definition: Definition) -> Path:
        """The directory of its `python`, `python3`, …, which is Turnout's own and may change."""
        return self._directory / _SHIMS / definition.key

    def is_made(self, definition: Definition) -> bool:
        return os.path.isdir(self.path(definition))

    def state(self, definition: Definition) -> str:
        if self.is_made(definition):
            return "ready"
        if definition.key in self._making:
            return "making"
        return "failed" if self.failure(definition) else "not made"

    def failure(self, definition: Definition) -> str:
        """Why it could not be made a short time ago; empty: it can be tried."""
        at, why = self._failed.get(definition.key, (0.0, ""))
        return why if time.monotonic() - at < _AGAIN_SECONDS else ""

    def record(self, definition: Definition) -> Record | None:
        """Blocks, but only on the disk."""
        return _read(self.path(definition))

    def contents(self, definition: Definition) -> str:
        """For people: the packages that it asks for, with the versions that it has."""
        if definition.key not in self._contents:
            record = self.record(definition)
            self._contents[definition.key] = _versions(definition, record.installed if record else [])
        return self._contents[definition.key]

    def last_use(self, definition: Definition) -> int | None:
        """In nanoseconds since 1970; None: it is not made. Blocks, but only on the disk."""
        try:
            return (self.path(definition) / _RECORD).stat().st_mtime_ns
        except OSError:
            return None

    def used(self, definition: Definition) -> None:
        """A job is about to use it."""
        with contextlib.suppress(OSError):
            os.utime(self.path(definition) / _RECORD)

    async def make(self, definition: Definition, on_line: OnLine, *, again: bool = False) -> None:
        """Returns when it is there, and says on the way how far it is. Raises MakingFailed.

        A caller that is cancelled does not stop it. `again`: also if it failed a short time ago.
        """
        if self.is_made(definition):
            return
        if not again and (why := self.failure(definition)):
            raise MakingFailed(why)
        making = self._making.get(definition.key)
        if making is None:
            making = self._making[definition.key] = _Making()
            making.task = asyncio.create_task(self._make(definition, making))
        making.listeners.append(on_line)
        on_line(
            f"making the environment of the runtime {definition.runtime} on Python {definition.python.version}: "
            f"{definition.packages}"
        )
        try:
            await asyncio.shield(making.task)
        finally:
            with contextlib.suppress(ValueError):
                making.listeners.remove(on_line)

    async def resolve(self, definition: Definition) -> list[str]:
        """The packages that it would have, with their versions. Raises MakingFailed."""
        async with self._one_at_a_time:
            try:
                return await self._build(definition, lambda _: None, make=False)
            finally:
                await pools.copies.run(pools.OWN, self._remove_draft, definition)

    async def close(self) -> None:
        for making in list(self._making.values()):
            making.task.cancel()
        if self._child:
            await self._child.close()

    def clear(self, needed: Iterable[Definition], before: float, dry: bool) -> tuple[int, int]:
        """Removes those that no runtime of the settings needs and no job has used since. Blocks.

        `before`: 0 removes none.
        """
        kept = {one.key for one in needed} | set(self._making) | in_use(self._directory)
        count = size = 0
        for name in os.listdir(self._directory) if before else ():
            path = self._directory / name
            record = None if name.startswith(".") or name in kept else _read(path)
            if record is None or (path / _RECORD).stat().st_mtime >= before:
                continue
            count, size = count + 1, size + record.bytes
            if not dry:
                gone = path.with_name(_REMOVED + name)
                path.chmod(0o755)
                path.rename(gone)
                for one in (gone, self._directory / _SHIMS / name):
                    remove(str(one))
        cache = self._directory / _CACHE
        if not dry and not self._making and cache.exists() and cache.stat().st_mtime < before:
            remove(str(cache))
        return count, size

    async def _make(self, definition: Definition, making: "_Making") -> None:
        began = time.monotonic()
        try:
            async with self._one_at_a_time:
                installed = await self._build(definition, making.report)
                made = await pools.copies.run(pools.OWN, self._finish, definition, installed, began)
            self._failed.pop(definition.key, None)
            making.report(
                f"the environment of the runtime {definition.runtime} is ready: {_size(made.bytes)}, "
                f"made in {made.seconds:.0f} s"
            )
        except MakingFailed as error:
            now = time.monotonic()
            recent = {key: one for key, one in self._failed.items() if now - one[0] < _AGAIN_SECONDS}
            self._failed = recent | {definition.key: (now, error.message)}
            raise
        except OSError as error:
            raise self._failure(definition, str(error)) from None
        finally:
            del self._making[definition.key]
            await pools.copies.run(pools.OWN, self._remove_draft, definition)

    async def _build(self, definition: Definition, on_line: OnLine, *, make: bool = True) -> list[str]:
        """Runs the child process. What it makes is in the draft's directory. Raises MakingFailed."""
        if self.uv is None:
            raise MakingFailed(NO_UV)
        draft = await pools.copies.run(pools.OWN, self._make_draft, definition)
        settings = self._settings
        build = Build(
            0,
            str(draft),
            str(self._directory / _CACHE),
            definition.python.path,
            "".join(f"{line}\n" for line in definition.lines),
            definition.build,
            settings.offline,
            uv_variables(
                settings.index, settings.extra_indexes, settings.find_links, config.download_environment()
            ),
            make,
        )
        child = self._child = Child(
            PROGRAM,
            BuilderReply,
            BuilderSetup(uv=self.uv),
            identity=self._builder,
            progress=lambda reply: on_line(reply.line),
        )
        try:
            async with asyncio.timeout(settings.make_seconds):
                answer = await child.request(build)
        except TimeoutError:
            raise self._failure(definition, f"it took longer than {settings.make_seconds:g} s") from None
        except Closed:
            raise asyncio.CancelledError from None
        except ChildDied as error:
            raise self._failure(definition, error.message) from None
        finally:
            await child.kill()
            self._child = None
        if answer.installed is None:
            raise self._failure(definition, answer.failed)
        chaos.point("environment.built")
        return answer.installed

    def _failure(self, definition: Definition, why: str) -> MakingFailed:
        return MakingFailed(
            f"the environment of the runtime {definition.runtime} ({definition.packages}) could not be made on Python "
            f"{definition.python.version}: {why.rstrip('.')}; its settings are {definition.setting}"
        )

    @cached_property
    def _builder(self) -> Identity | None:
        """A user that owns nothing else; None: the service's own. Blocks. Raises Misconfigured."""
        return Identity(self._accounts.builder.uid, _NOGROUP) if self._accounts.uids else None

    def _make_draft(self, definition: Definition) -> Path:
        draft, cache = self._draft(definition), self._directory / _CACHE
        self._remove_draft(definition)
        if self._builder and cache.exists() and cache.stat().st_uid != self._builder.uid:
            # The settings had another range of uids: the new user cannot change what the old one has downloaded.
            remove(str(cache))
        for path in (draft, cache):
            path.mkdir(mode=0o700, exist_ok=True)
            if self._builder:
                os.chown(path, self._builder.uid, self._builder.gid)
        os.utime(cache)
        return draft

    def _finish(self, definition: Definition, installed: list[str], began: float) -> Record:
        """The builder's process has ended. Raises OSError."""
        draft, final = self._draft(definition) / "environment", self.path(definition)
        size = protect(str(draft), self._builder.uid if self._builder else None)
        seconds = time.monotonic() - began
        record = Record(
            definition.runtime,
            list(definition.lines),
            installed,
            definition.python.version,
            time.time_ns(),
            seconds,
            size.bytes,
        )
        (draft / _RECORD).write_bytes(msgspec.json.encode(record))
        draft.chmod(0o755)
        _sync(draft)
        chaos.point("environment.protected")
        draft.rename(final)
        return record

    def _remove_draft(self, definition: Definition) -> None:
        with contextlib.suppress(OSError):
            remove(str(self._draft(definition)))

    def _draft(self, definition: Definition) -> Path:
        return self._directory / (_MAKING + definition.key)


class _Making:
    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.listeners: list[OnLine] = []

    def report(self, line: str) -> None:
        for on_line in list(self.listeners):
            on_line(line)


NO_UV = f"uv is not installed: {sys.executable} -m pip install uv"


def find_uv() -> str | None:
    """The one that was installed with Turnout, or one on the PATH."""
    own = Path(sys.executable).with_name("uv")
    return (
        str(own)
        if os.access(own, os.X_OK)
        else shutil.which("uv", path=os.pathsep.join(config.search_path()))
    )


def in_use(directory: Path) -> set[str]:
    """The names of environments that running processes have in their variables."""
    pattern = re.compile(re.escape(os.fsencode(directory)) + rb"/([0-9a-f]{24})/")
    found: set[str] = set()
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                found |= {key.decode() for key in pattern.findall(file.read())}
    return found


def _versions(definition: Definition, installed: list[str]) -> str:
    names = [_normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in definition.lines]
    by_name = {_normal(re.split("==| @ ", line, maxsplit=1)[0]): line for line in installed}
    return (
        ", ".join([by_name[name] for name in dict.fromkeys(names) if name in by_name][:8])
        or definition.packages
    )


def _normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(path: Path) -> Record | None:
    try:
        return msgspec.json.decode((path / _RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def _sync(directory: Path) -> None:
    """So that after a power loss it is whole if it has its name."""
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _C.syncfs(here):
            raise OSError(ctypes.get_errno(), "the file system cannot be synced")
    finally:
        os.close(here)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
