"""The default engine: runs gangs as processes of this machine, in a sandbox if there is one, below one supervisor."""

import asyncio
import base64
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping

from turnout import chaos, pools
from turnout.config import Settings
from turnout.engines import Refused, Traits, Unreachable
from turnout.engines.local import program_page
from turnout.engines.local.cleanup import leftovers
from turnout.engines.local.cleanup.trash import Trash
from turnout.engines.local.data import nfs, scratch, staging_plan
from turnout.engines.local.data.mounts import MountBinder
from turnout.engines.local.data.stager_client import StagerClients, TransferFailed
from turnout.engines.local.data.staging import MountSources, Staging
from turnout.engines.local.environments.environments import MakingFailed
from turnout.engines.local.environments.operations import LocalRuntimeOperations
from turnout.engines.local.environments.provider import EnvironmentProvider
from turnout.engines.local.gang_sockets import GangListeners, GangSockets, NoGangListeners
from turnout.engines.local.images.job_images import JobImages
from turnout.engines.local.leases import Leases
from turnout.engines.local.logs.encrypted import EncryptedLog
from turnout.engines.local.logs.followers import LogFollowers
from turnout.engines.local.machine import machine
from turnout.engines.local.machine.machine import Machine
from turnout.engines.local.reporter import Reporter
from turnout.engines.local.supervisor import messages, unreadable
from turnout.engines.local.supervisor.backoff import Backoff
from turnout.engines.local.supervisor.client import SupervisorClient
from turnout.engines.local.supervisor.listeners import Listeners
from turnout.engines.local.supervisor.messages import SupervisorMessage
from turnout.engines.local.supervisor.process import SupervisorProcess
from turnout.engines.local.terminals import LocalTerminal, Terminals
from turnout.engines.local.usage.sampler import Hardware, Sampler
from turnout.engines.local.users.account import Accounts
from turnout.engines.log_files import FileLog
from turnout.errors import TurnoutError
from turnout.images import ImageCache
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
)
from turnout.paths import Paths
from turnout.runner.images import ImageRoot
from turnout.runner.messages import GangPlan, RestartPlan
from turnout.runner.plan import Bind, Impossible, plan_gang
from turnout.storage import Resolved
from turnout.vault import Header, KeyRing

_log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 1.0

SharedVariables = Callable[[Launch, bool], dict[str, str]]
"""The variables of all replicas of a gang. True: it has a network of its own."""


class LocalEngine:
    traits = Traits("local")

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        storage: MountSources,
        ring: KeyRing | None = None,
        listeners: Listeners | None = None,
        accounts: Accounts | None = None,
        images: ImageCache | None = None,
    ) -> None:
        self._paths = paths
        self._accounts = accounts
        self._settings = settings
        self._storage = storage
        self._ring = KeyRing() if ring is None else ring
        self._listeners = listeners
        self._image_cache = images
        self._leases = Leases()
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._reconnecting: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._starting: dict[Attempt, asyncio.Task[None]] = {}
        """Starts whose mounts are being prepared."""
        self._restarting: dict[tuple[Attempt, ReplicaName], asyncio.Task[None]] = {}
        """Restarts whose mounts are being prepared."""
        self._saving: dict[Attempt, asyncio.Task[None]] = {}
        self.runtimes = LocalRuntimeOperations(lambda: self._machine)
        self.gang_listeners: GangListeners = NoGangListeners()
        self.shared_variables: SharedVariables = lambda launch, own_network: {}
        self._trash = Trash(paths.attempts, paths.all_copies, paths.all_exported)

    def remember(self, submitted: Mapping[Attempt, str]) -> None:
        """Does nothing: the supervisor's journal has all that is needed."""

    async def open(self) -> None:
        self._machine = await pools.service.run(
            pools.OWN, machine.prepare, self._paths, self._settings, self._accounts
        )
        self._users = self._machine.users
        self._images = JobImages(self._image_cache, self._paths, self._machine, self._reports.put_nowait)
        accounts, network = self._machine.accounts, self._machine.network
        self._supervisor_process = SupervisorProcess(
            self._paths,
            accounts,
            bool(self._machine.layout.sandbox),
            self._settings.limits.open_files,
            bool(self._ring),
        )
        self._supervisor = SupervisorClient(
            self._paths,
            accounts,
            self._supervisor_process,
            self._listeners,
            network.message,
            self._received,
            self._received_unreadable,
            self._lost_supervisor,
        )
        send = self._supervisor.send
        self._terminals = Terminals(send, self._users.uid)
        self._sockets = GangSockets(send)
        self._followers = LogFollowers(send)
        self._leases.probe = not network.own
        self._stagers = StagerClients()
        self._staging = Staging(self._paths, self._storage, self._stagers, accounts, self._ring)
        self._mounts = MountBinder(
            self._storage, self._staging, nfs.NfsMounter(self._paths.supervisor / "nfs")
        )
        self._environments = EnvironmentProvider(
            self._machine.runtimes, self._machine.environments, self._reports.put_nowait
        )
        self._sampler = Sampler(
            self._settings.limits.sample_seconds, _hardware(self._machine), self._reports.put_nowait
        )
        self._reporter = Reporter(
            self._reports,
            self._starting.keys(),
            self._leases,
            self._users,
            self._sockets,
            self._sampler,
            self._staging,
            self._followers,
            self._images,
        )
        self._reports.put_nowait(Capacity((self._machine.node,)))
        self._trash.start()
        await self._connect()

    def stopping(self) -> None:
        """The service stops on purpose: the supervisor need not wait for the next one."""
        with contextlib.suppress(Unreachable):
            self._supervisor.send(messages.service_stopping())

    def staged(self) -> dict[str, int]:
        """Bytes that were copied from ("in") and to ("out") remote object stores since the service started."""
        return self._stagers.moved

    async def close(self) -> None:
        if self._reconnecting:
            self._reconnecting.cancel()
        for task in (*self._starting.values(), *self._restarting.values(), *self._saving.values()):
            task.cancel()
        self._trash.close()
        self.gang_listeners.close()
        await self._staging.close()
        await self._machine.environments.close()
        self._sampler.close()
        self._terminals.close()
        self._supervisor.close()
        self._images.close()

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    async def reports(self) -> AsyncIterator[Report]:
        while True:
            yield await self._reports.get()

    def clear_environments(self, before: float, dry: bool) -> tuple[int, int]:
        """See `Environments.clear`."""
        needed = self._machine.runtimes.definitions().values()
        return self._machine.environments.clear(needed, before, dry)

    def runtime(self, name: str) -> str:
        return self._machine.runtimes.describe(name)

    def no_images(self) -> str:
        """Why this machine cannot run images; empty: it can."""
        return self._machine.no_images

    def refuses(self, launch: Launch) -> str:
        if why := self._images.refuses(launch):
            return why
        refuses = self._machine.runtimes.refuses
        return next((why for role in launch.spec.roles if (why := refuses(role.program.runtime))), "")

    def trouble(self) -> str:
        """The outbox notices if the supervisor does not answer."""
        return ""

    async def start(self, launch: Launch) -> None:
        if launch.attempt in self._starting:
            return
        if why := self.refuses(launch):
            raise Refused(why)
        if launch.spec.key and launch.spec.logs:
            raise Refused(
                "the logs of an encrypted job cannot be written to a bucket: they would be readable there"
            )
        try:
            mounts, images = self._mounts.resolve(launch), self._images.cached(launch)
            if (
                images is None
                or launch.spec.logs
                or not self._mounts.are_bound(mounts)
                or self._mounts.may_hang(mounts)
                or self._environments.missing(launch)
            ):
                # This may take long, and other jobs must not wait for it.
                task = asyncio.create_task(self._prepare_and_start(launch, mounts))
                self._starting[launch.attempt] = task
                task.add_done_callback(lambda task: self._start_done(launch, task))
                return
            binds = self._mounts.binds(launch, mounts, {})
        except TransferFailed as error:
            self._report_not_started(launch, Cause.STAGING, error.message)
            return
        self._send_plan(launch, binds, images)

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        if launch.attempt in self._starting or (launch.attempt, replica) in self._restarting:
            return
        try:
            mounts, images = self._mounts.resolve(launch), self._images.cached(launch)
            if images is not None and not self._mounts.may_hang(mounts):
                binds = self._mounts.binds(launch, mounts, self._staging.copies(launch, mounts))
                self._send_restart(launch, replica, restarts, binds, images)
                return
        except TransferFailed as error:
            self._report_not_restarted(launch, replica, restarts, Cause.STAGING, error.message)
            return
        task = asyncio.create_task(self._prepare_and_restart(launch, replica, restarts, mounts))
        self._restarting[launch.attempt, replica] = task
        task.add_done_callback(lambda task: self._restart_done(launch, replica, restarts, task))

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        for (owner, replica), task in self._restarting.items():
            if owner == attempt and (not replicas or replica in replicas):
                task.cancel()
        if attempt in self._starting:
            self._starting[attempt].cancel()
            return
        self._supervisor.send(messages.stop(attempt, grace, replicas))

    async def save(self, attempt: Attempt) -> None:
        if attempt not in self._saving:
            self._saving[attempt] = asyncio.create_task(self._save(attempt))

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        for (owner, _), task in self._restarting.items():
            if owner == attempt:
                task.cancel()
        self._staging.forget(attempt, keep_workspace)
        self._leases.release(attempt)
        self._sampler.forget(attempt)
        self._sockets.forget(attempt)
        self.gang_listeners.ended(attempt)
        self._users.forget(attempt)
        self._images.forget(attempt)
        self._reporter.forget(attempt)
        self._supervisor.send_soon(messages.forget(attempt, keep_workspace))
        self._trash.expect()

    async def remove(self, attempts: list[Attempt]) -> None:
        # The trash may take long. What is left when the service stops is removed after its next start.
        names = {str(attempt) for attempt in attempts}
        await pools.service.run(pools.OWN, staging_plan.remove_plans, self._paths.staging, names)
        self._trash.remove(names)

    async def attempts_on_disk(self) -> list[Attempt]:
        return await pools.service.run(pools.OWN, leftovers.attempts, self._paths)

    def log(self, attempt: Attempt, replica: ReplicaName) -> FileLog:
        directory = self._paths.replica(attempt, replica)
        if not directory.exists():
            first = self._paths.first_replica(attempt, replica)
            return FileLog(first if first.exists() else directory)
        return EncryptedLog(directory, self._ring) if EncryptedLog.is_at(directory) else FileLog(directory)

    def read_scratch_file(self, attempt: Attempt, replica: ReplicaName, path: str, most: int) -> bytes:
        return scratch.read(self._paths.replica(attempt, replica), path, most)

    def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        return self._followers.follow(attempt)

    async def shell(self, attempt: Attempt, replica: ReplicaName, size: Size) -> LocalTerminal:
        return await self._terminals.open(attempt, replica, size)

    async def program_page(self, attempt: Attempt, replica: Replica) -> socket.socket | None:
        name = str(replica.name)
        port, reserved = self._leases.program_page(attempt, name), self._leases.ports(attempt, name)
        address = await pools.network.run(str(attempt.job), program_page.find, replica, port, reserved)
        return await self._sockets.connect(attempt, address) if address else None

    # Starts and restarts.

    async def _prepare_and_start(self, launch: Launch, mounts: list[Resolved]) -> None:
        try:
            images = await self._images.fetch(launch)
            await self._environments.provide(launch)
            prepared = await self._mounts.prepare(launch, mounts)
            self._send_plan(launch, self._mounts.binds(launch, mounts, prepared), images)
            self._staging.watch(launch.attempt)
        except Unreachable:
            pass  # the controller repeats the start after the next sync
        except MakingFailed as error:
            self._report_not_started(launch, Cause.REFUSED, error.message)
        except TurnoutError as error:
            cause = Cause.REFUSED if isinstance(error, Refused) else Cause.STAGING
            self._report_not_started(launch, cause, error.message)
        except Exception as error:  # noqa: BLE001 (nobody awaits this task: the job's end has to carry the error)
            _log.exception("cannot prepare the mounts of %s", launch.attempt)
            self._report_not_started(launch, Cause.STAGING, str(error))

    def _start_done(self, launch: Launch, task: asyncio.Task[None]) -> None:
        del self._starting[launch.attempt]
        # A task that is cancelled before its first step runs no handler of its own.
        if task.cancelled():
            self._report_not_started(launch, Cause.STOPPED, "it was stopped before it started")

    def _report_not_started(self, launch: Launch, cause: Cause, message: str) -> None:
        for replica, _ in launch.replicas():
            self._reports.put_nowait(Ended(launch.attempt, replica, time.time_ns(), cause, message=message))

    def _send_plan(self, launch: Launch, binds: list[Bind], images: Mapping[str, ImageRoot]) -> None:
        try:
            plan = self._plan(launch, binds, images)
        except Refused:
            self._leases.release(launch.attempt)
            raise
        self._environments.used(launch)
        self._sampler.expect(launch.attempt, plan.allowance)
        self._sockets.claimed(launch.attempt, plan.shared.network)
        self._users.claimed(launch.attempt, plan.user)
        self._supervisor.send(plan)
        self._images.used(launch, images)
        self._trash.postpone()
        chaos.point("engine.sent")

    async def _prepare_and_restart(
        self, launch: Launch, replica: ReplicaName, restarts: int, mounts: list[Resolved]
    ) -> None:
        images = await self._images.fetch(launch)
        prepared = await self._mounts.prepare_restart(launch, mounts)
        binds = self._mounts.binds(launch, mounts, prepared)
        self._send_restart(launch, replica, restarts, binds, images)

    def _restart_done(
        self, launch: Launch, replica: ReplicaName, restarts: int, task: asyncio.Task[None]
    ) -> None:
        del self._restarting[launch.attempt, replica]
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            cause, message = Cause.STOPPED, "it was stopped before it started again"
        elif error is None or isinstance(error, Unreachable):
            return  # if it is unreachable, the controller repeats the restart after the next sync
        else:
            cause, message = Cause.STAGING, str(error)
        self._report_not_restarted(launch, replica, restarts, cause, message)

    def _report_not_restarted(
        self, launch: Launch, replica: ReplicaName, restarts: int, cause: Cause, message: str
    ) -> None:
        end = Ended(launch.attempt, replica, time.time_ns(), cause, message=message, restarts=restarts)
        self._reports.put_nowait(end)

    def _send_restart(
        self,
        launch: Launch,
        replica: ReplicaName,
        restarts: int,
        binds: list[Bind],
        images: Mapping[str, ImageRoot],
    ) -> None:
        plan = self._plan(launch, binds, images, replica)
        self._supervisor.send(RestartPlan(plan.a, restarts, plan.shared, plan.replicas[0]))
        chaos.point("engine.again")

    def _plan(
        self,
        launch: Launch,
        binds: list[Bind],
        images: Mapping[str, ImageRoot],
        only: ReplicaName | None = None,
    ) -> GangPlan:
        try:
            gang = self._leases.lease(launch)
            runtimes = {
                role.program.runtime: self._machine.runtimes.get(role.program.runtime)
                for role in launch.spec.roles
            }
            seal = self._data_key(launch)
            layout = self._users.layout(self._machine.layout, launch.project)
            env = self.shared_variables(launch, layout.own_network)
            return plan_gang(launch, gang, runtimes, binds, layout, self._paths, seal, only, env, images)
        except (Impossible, TurnoutError) as error:
            raise Refused(str(error)) from error

    def _data_key(self, launch: Launch) -> dict[str, str] | None:
        """The data key for the log encrypter; None: the job is not encrypted. Raises KeyGone."""
        spec = launch.spec
        if not spec.key:
            return None
        secret = self._ring.data_key(Header.of(spec.key, spec.wrapped_key)).secret
        return {
            "name": spec.key,
            "wrapped": spec.wrapped_key,
            "secret": base64.b64encode(secret).decode(),
        }

    async def _save(self, attempt: Attempt) -> None:
        summary = trouble = ""
        try:
            summary = await self._staging.save(attempt)
        except TurnoutError as error:
            trouble = error.message
        except Exception as error:  # noqa: BLE001 (as in `_prepare_and_start`)
            _log.exception("cannot save the results of %s", attempt)
            trouble = str(error)
        finally:
            del self._saving[attempt]
        self._reports.put_nowait(Saved(attempt, time.time_ns(), trouble, summary))

    # The connection to the supervisor.

    async def _connect(self, pause: float = 0.0) -> None:
        """Tries until it succeeds. A supervisor that is about to end may accept the connection once and be gone."""
        await asyncio.sleep(pause)
        while True:
            try:
                await self._supervisor.connect()
                self._backoff.started()
                break
            except (Unreachable, OSError) as error:
                if pause:
                    _log.error("cannot reach the supervisor, trying again: %s", error)
                await asyncio.sleep(pause)
                pause = _RECONNECT_SECONDS
        self._followers.resubscribe()

    def _lost_supervisor(self) -> None:
        """A supervisor with a connected service ends only if it is killed. The first time, the next starts at once."""
        pause = self._backoff.ended()
        _log.warning("the supervisor was lost and is started again%s", f" in {pause:g} s" if pause else "")
        self._reconnecting = asyncio.get_running_loop().create_task(self._connect(pause))

    def _received(self, message: SupervisorMessage) -> None:
        if message.grew:
            self._followers.notify(Attempt.parse(message.grew))
        elif message.shell:
            self._terminals.received(*message.shell)
        elif message.socket:
            number, error = message.socket
            self._sockets.received(number, error, -1 if error else self._supervisor.take_descriptor())
        elif message.gateway:
            listener = socket.socket(fileno=self._supervisor.take_descriptor())
            listener.setblocking(False)
            self.gang_listeners.opened(Attempt.parse(message.gateway), listener)
        else:
            self._reporter.received(message)

    def _received_unreadable(self, line: bytes, error: Exception) -> None:
        unreadable.set_aside(self._paths.unread, line, error)
        attempt = self._reporter.received_unreadable(line)
        if attempt is not None:
            with contextlib.suppress(Unreachable):  # the next connection brings the line again
                self._supervisor.send(messages.stop(attempt, 0))


def _hardware(machine: Machine) -> Hardware:
    """What a job without limits is measured against."""
    return Hardware(len(os.sched_getaffinity(0)), machine.node.memory, bool(machine.layout.gpu_devices))
