"""The default engine: processes on this machine, in a sandbox where there is one, under a keeper of their own."""

import asyncio
import base64
import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from queue import SimpleQueue
from threading import Thread

from turnout import chaos
from turnout.config import Settings
from turnout.engines import Refused, Unreachable
from turnout.engines.local import machine, nfs, page, scratch
from turnout.engines.local.leases import Leases
from turnout.engines.local.link import Link, Said
from turnout.engines.local.log import FileLog
from turnout.engines.local.mover import Mover
from turnout.engines.local.sampler import Machine, Sampler
from turnout.engines.local.sealed_log import SealedLog
from turnout.engines.local.shell import LocalTerminal, Shells
from turnout.engines.local.staging import Staging, Storage
from turnout.errors import TurnoutError
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    Launch,
    Replica,
    ReplicaName,
    Report,
    Saved,
    Size,
    Started,
    Synced,
    Trimmed,
)
from turnout.paths import Paths
from turnout.runner.plan import Again, Bind, GangPlan, Impossible, plan_gang
from turnout.vault import Header, KeyRing

_log = logging.getLogger(__name__)

_PAUSE = 1.0
_GONE = "gone_"
_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")
_LAST_JOB = (1 << 63) - 1


class LocalEngine:
    places = True

    def __init__(
        self, paths: Paths, settings: Settings, storage: Storage, ring: KeyRing | None = None
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._storage = storage
        self._ring = KeyRing() if ring is None else ring
        self._leases = Leases()
        self._nfs = nfs.Mounts(paths.keeper / "nfs")
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._held: set[Attempt] = set()
        self._followers: dict[Attempt, set[asyncio.Event]] = {}
        self._redial: asyncio.Task[None] | None = None
        self._mounting: dict[Attempt, asyncio.Task[None]] = {}
        self._returning: dict[tuple[Attempt, ReplicaName], asyncio.Task[None]] = {}
        self._saving: dict[Attempt, asyncio.Task[None]] = {}
        self._doomed: SimpleQueue[list[Attempt]] = SimpleQueue()

    async def open(self) -> None:
        self._machine = await asyncio.to_thread(machine.prepare, self._paths, self._settings)
        self._link = Link(
            self._paths,
            self._machine.account,
            bool(self._machine.layout.sandbox),
            self._settings.limits.open_files,
            bool(self._ring),
            self._heard,
            self._lost,
        )
        self._shells = Shells(self._link.send, self._machine.account)
        self._staging = Staging(
            self._paths,
            self._storage,
            Mover(self._machine.account),
            self._machine.account,
            self._ring,
        )
        self._sampler = Sampler(
            self._settings.limits.sample_seconds, self._measured(), self._reports.put_nowait
        )
        self._reports.put_nowait(Capacity((self._machine.node,)))
        self._doomed.put([])  # what the last service did not finish removing
        Thread(target=self._clear_away, name="clear-away", daemon=True).start()
        await self._connect()

    async def close(self) -> None:
        if self._redial:
            self._redial.cancel()
        for task in (*self._mounting.values(), *self._returning.values(), *self._saving.values()):
            task.cancel()
        await self._staging.close()
        self._sampler.close()
        self._shells.close()
        self._link.close()

    @property
    def keeper(self) -> int:
        """The keeper's process id."""
        return self._link.keeper

    async def reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def runtime(self, name: str) -> str:
        return self._machine.runtimes.describe(name)

    async def start(self, launch: Launch) -> None:
        if launch.spec.key and launch.spec.logs:
            raise Refused(
                "a job with a key cannot have its logs written into a bucket: they would be readable"
            )
        remote = nfs.wanted(launch)
        copied = self._to_copy(launch, remote)
        if remote or copied or launch.spec.logs:
            # It may take its time, and nobody else's job shall wait for it.
            task = asyncio.create_task(self._start_prepared(launch, remote, copied))
            self._mounting[launch.attempt] = task
            task.add_done_callback(lambda task: self._prepared(launch, task))
            return
        self._send(launch, self._binds(launch, {}))

    def _to_copy(self, launch: Launch, remote: list[str]) -> list[int]:
        """The numbers of those mounts. Raises Refused where one cannot be had at all."""
        try:
            for source in remote:
                self._nfs.check(source)
            return self._staging.wanted(launch) if launch.spec.mounts else []
        except TurnoutError as error:
            raise Refused(error.message) from error

    async def _start_prepared(self, launch: Launch, remote: list[str], copied: list[int]) -> None:
        try:
            binds = await self._staging.fetch(launch, copied) | await self._mounted(launch, remote)
            self._send(launch, self._binds(launch, binds))
            self._staging.watch(launch.attempt)
        except Unreachable:
            pass  # said again once the keeper is back
        except TurnoutError as error:
            self._never_started(launch, Cause.STAGING, error.message)
        except Exception as error:  # noqa: BLE001 (nobody awaits this task: it must be told as the job's end)
            _log.exception("mounts of %s", launch.attempt)
            self._never_started(launch, Cause.STAGING, str(error))

    async def _mounted(self, launch: Launch, remote: list[str]) -> dict[int, Bind]:
        binds: dict[int, Bind] = {}
        for source in remote:
            mounted = str(await asyncio.to_thread(self._nfs.mount, source))
            for number, mount in enumerate(launch.spec.mounts):
                if mount.source == source:
                    binds[number] = Bind(mounted, (), mount.target, mount.read_only)
        return binds

    def _prepared(self, launch: Launch, task: asyncio.Task[None]) -> None:
        del self._mounting[launch.attempt]
        # Also if it was called off before it had begun.
        if task.cancelled():
            self._never_started(launch, Cause.STOPPED, "it was stopped before it started")

    def _never_started(self, launch: Launch, cause: Cause, message: str) -> None:
        for replica, _ in launch.replicas():
            self._reports.put_nowait(Ended(launch.attempt, replica, time.time_ns(), cause, message=message))

    def _send(self, launch: Launch, binds: list[Bind]) -> None:
        try:
            plan = self._plan(launch, binds)
        except Refused:
            self._leases.release(launch.attempt)
            raise
        self._sampler.expect(launch.attempt, plan.allowance)
        self._link.send(plan)
        chaos.point("engine.sent")

    def _plan(self, launch: Launch, binds: list[Bind], only: ReplicaName | None = None) -> GangPlan:
        here = self._machine
        try:
            gang = self._leases.lease(launch)
            runtimes = {
                role.program.runtime: here.runtimes.get(role.program.runtime) for role in launch.spec.roles
            }
            seal = self._data_key(launch)
            return plan_gang(launch, gang, runtimes, binds, here.layout, self._paths, seal, only)
        except (Impossible, TurnoutError) as error:
            raise Refused(str(error)) from error

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        if (launch.attempt, replica) in self._returning:
            return
        remote = nfs.wanted(launch)
        # What was copied for it is still there, with what it and its peers have written since.
        binds = self._staging.copies(launch, self._to_copy(launch, remote))
        if not remote:
            self._send_again(launch, replica, restarts, binds)
            return
        task = asyncio.create_task(self._restart_mounted(launch, replica, restarts, remote, binds))
        self._returning[launch.attempt, replica] = task
        task.add_done_callback(lambda task: self._returned(launch, replica, restarts, task))

    async def _restart_mounted(
        self, launch: Launch, replica: ReplicaName, restarts: int, remote: list[str], binds: dict[int, Bind]
    ) -> None:
        self._send_again(launch, replica, restarts, binds | await self._mounted(launch, remote))

    def _returned(
        self, launch: Launch, replica: ReplicaName, restarts: int, task: asyncio.Task[None]
    ) -> None:
        del self._returning[launch.attempt, replica]
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            cause, message = Cause.STOPPED, "it was stopped before it started again"
        elif error is None or isinstance(error, Unreachable):
            return  # in the latter case it is said again once the keeper is back
        else:
            cause, message = Cause.STAGING, str(error)
        end = Ended(launch.attempt, replica, time.time_ns(), cause, message=message, restarts=restarts)
        self._reports.put_nowait(end)

    def _send_again(
        self, launch: Launch, replica: ReplicaName, restarts: int, prepared: dict[int, Bind]
    ) -> None:
        plan = self._plan(launch, self._binds(launch, prepared), replica)
        self._link.send(Again(plan.a, restarts, plan.shared, plan.replicas[0]))
        chaos.point("engine.again")

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        for (owner, replica), task in self._returning.items():
            if owner == attempt and (not replicas or replica in replicas):
                task.cancel()
        if attempt in self._mounting:
            self._mounting[attempt].cancel()
            return
        self._link.send(
            {"t": "stop", "a": str(attempt), "names": [str(name) for name in replicas], "grace": grace}
        )

    async def save(self, attempt: Attempt) -> None:
        if attempt not in self._saving:
            self._saving[attempt] = asyncio.create_task(self._save(attempt))

    async def _save(self, attempt: Attempt) -> None:
        moved = trouble = ""
        try:
            moved = await self._staging.save(attempt)
        except TurnoutError as error:
            trouble = error.message
        except Exception as error:  # noqa: BLE001 (as above)
            _log.exception("results of %s", attempt)
            trouble = str(error)
        finally:
            del self._saving[attempt]
        self._reports.put_nowait(Saved(attempt, time.time_ns(), trouble, moved))

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        for (owner, _), task in self._returning.items():
            if owner == attempt:
                task.cancel()
        self._staging.forget(attempt, keep_workspace)
        self._leases.release(attempt)
        self._sampler.forget(attempt)
        self._held.discard(attempt)
        self._link.send_soon({"t": "forget", "a": str(attempt), "keep": keep_workspace})

    async def remove(self, attempts: list[Attempt]) -> None:
        # It may take long; what is not done when the service ends is swept at its next start.
        self._doomed.put(attempts)

    async def stored(self) -> list[Attempt]:
        return await asyncio.to_thread(self._stored)

    def log(self, attempt: Attempt, replica: ReplicaName) -> FileLog:
        directory = self._paths.replica(attempt, replica)
        return SealedLog(directory, self._ring) if SealedLog.is_at(directory) else FileLog(directory)

    def written(self, attempt: Attempt, replica: ReplicaName, path: str, most: int) -> bytes:
        return scratch.read(self._paths.replica(attempt, replica), path, most)

    async def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        event = asyncio.Event()
        followers = self._followers.setdefault(attempt, set())
        followers.add(event)
        try:
            if len(followers) == 1:
                # Told again when the keeper is back.
                with contextlib.suppress(Unreachable):
                    self._link.send({"t": "follow", "a": str(attempt), "on": True})
            # What was written before the keeper heard of it is not told: let the caller look once.
            event.set()
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            followers.discard(event)
            if not followers and self._followers.pop(attempt, None) is not None:
                with contextlib.suppress(Unreachable):
                    self._link.send({"t": "follow", "a": str(attempt), "on": False})

    async def shell(self, attempt: Attempt, replica: ReplicaName, size: Size) -> LocalTerminal:
        return await self._shells.open(attempt, replica, size)

    async def dashboard(self, attempt: Attempt, replica: Replica) -> tuple[str, int] | None:
        name = str(replica.name)
        port, taken = self._leases.dashboard(attempt, name), self._leases.ports(attempt, name)
        return await asyncio.to_thread(page.find, replica, port, taken)

    def _measured(self) -> Machine:
        """What the machine has, where a job has no limit."""
        here = self._machine
        cores = len(os.sched_getaffinity(0))
        return Machine(cores, here.node.memory, bool(here.layout.gpu_devices))

    def _data_key(self, launch: Launch) -> dict[str, str] | None:
        """What seals the logs, for the pump. Raises KeyGone."""
        spec = launch.spec
        if not spec.key:
            return None
        secret = self._ring.data_key(Header.of(spec.key, spec.wrapped_key)).secret
        return {
            "name": spec.key,
            "wrapped": spec.wrapped_key,
            "secret": base64.b64encode(secret).decode(),
        }

    def _binds(self, launch: Launch, prepared: dict[int, Bind]) -> list[Bind]:
        binds: list[Bind] = []
        try:
            for number, mount in enumerate(launch.spec.mounts):
                if number in prepared:
                    binds.append(prepared[number])
                    continue
                bound = self._storage.bind(mount.source, launch.project, mount.read_only)
                binds.append(Bind(str(bound.root), bound.parts, mount.target, bound.read_only))
        except TurnoutError as error:
            raise Refused(error.message) from error
        return binds

    # What the keeper says.

    def _heard(self, said: Said) -> None:
        put = self._reports.put_nowait
        if line := said.started:
            key = Attempt.parse(line.a)
            replica = ReplicaName.parse(line.name)
            self._held.add(key)
            self._sampler.began(key, replica, line.pid, line.at)
            address = self._leases.address(key, line.name)
            put(Started(key, replica, line.at, line.pid, address, line.restarts))
        elif end := said.ended:
            key = Attempt.parse(end.a)
            replica = ReplicaName.parse(end.name)
            self._held.add(key)
            self._sampler.ended(key, replica)
            cause = Cause(end.cause)
            put(Ended(key, replica, end.at, cause, end.code, end.signal, end.message, end.restarts))
            self._wake(key)
        elif said.grew:
            self._wake(Attempt.parse(said.grew))
        elif said.shell:
            self._shells.heard(*said.shell)
        elif said.claim:
            key = Attempt.parse(said.claim.a)
            self._held.add(key)
            self._leases.restore(key, said.claim.note)
            self._sampler.expect(key, said.claim.allowance)
            self._staging.watch(key)
        elif said.trimmed:
            attempt, name, at, message = said.trimmed
            put(Trimmed(Attempt.parse(attempt), ReplicaName.parse(name), at, message))
        elif said.hello:
            self._held.clear()
        elif said.synced:
            put(Synced(frozenset(self._held | self._mounting.keys())))

    def _wake(self, attempt: Attempt) -> None:
        for event in self._followers.get(attempt, ()):
            event.set()

    def _lost(self) -> None:
        """The keeper never goes while we are connected, unless it is killed: start it again at once."""
        _log.warning("the keeper was lost and is started again")
        self._redial = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Tries until it works: without a keeper nothing does. One that was just going answers once and is gone."""
        pause = 0.0
        while True:
            try:
                await self._link.connect()
                break
            except (Unreachable, OSError) as error:
                if pause:
                    _log.error("the keeper cannot be reached and is tried again: %s", error)
                await asyncio.sleep(pause)
                pause = _PAUSE
        for attempt in self._followers:
            self._link.send({"t": "follow", "a": str(attempt), "on": True})

    # What is on disk.

    def _clear_away(self) -> None:
        while True:
            self._remove(self._doomed.get())

    def _remove(self, attempts: list[Attempt]) -> None:
        self._staging.remove(attempts)
        doomed = {str(attempt) for attempt in attempts}
        for name in os.listdir(self._paths.attempts):
            if name.startswith(_GONE) or name.partition("_")[0] in doomed:
                self._remove_one(name)

    def _remove_one(self, name: str) -> None:
        """Moved away first, as a whole: the keeper may be about to use parts of it again."""
        gone = self._paths.attempts / (name if name.startswith(_GONE) else _GONE + name)
        with contextlib.suppress(OSError):
            if gone.name != name:
                os.rename(self._paths.attempts / name, gone)
            shutil.rmtree(gone, onerror=_open_up)

    def _stored(self) -> list[Attempt]:
        """Without a sandbox a job can make names of any kind here; those of the keeper's spares begin with a dot."""
        found: set[Attempt] = set()
        for name in os.listdir(self._paths.attempts):
            text = name.partition("_")[0]
            if _ATTEMPT.fullmatch(text) and (attempt := Attempt.parse(text)).job <= _LAST_JOB:
                found.add(attempt)
        return sorted(found)


def _open_up(remove: Callable[[str], None], path: str, _: object) -> None:
    """A program may have left directories that even their owner may not go into."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        remove(path)
