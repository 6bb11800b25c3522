"""What runners call: the other half of the protocol that `runner/node` speaks. The gateway checks and decodes.

Every call may be repeated: a runner that got no answer sends it again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from turnout import chaos, pools
from turnout.engines.remote.attempt import Member, RemoteAttempt
from turnout.engines.remote.lifecycle import Lifecycle, Write
from turnout.engines.remote.logs import Piece, ReplicaLogs, RunnerMark
from turnout.engines.remote.records import Accepted, Arrival, Arrived, Began, Claimed, Fact, Over, Stored
from turnout.engines.remote.saving import Saving
from turnout.engines.remote.settings import RemoteSettings
from turnout.engines.remote.terminals import RemoteTerminal, RemoteTerminals
from turnout.engines.remote.transfers import Transfers
from turnout.errors import Invalid, NotFound, TurnoutError, Unauthenticated
from turnout.job import Attempt, Cause, Hung, Launch, ReplicaName, Report, Sample, Sampled, Submitted, Trimmed
from turnout.runner.node_plan import Node, NodePlan, plan_on_node
from turnout.runner.targets import Impossible

POLL_SECONDS = 25.0
"""The longest that a call waits."""

TERMINATED = "terminated"
"""The runner got a signal that nobody here sent: the cluster knows why."""


class Gone(TurnoutError):
    """The attempt is not here any more. Its runners end their programs and leave."""


class Fenced(TurnoutError):
    """Another runner has this replica."""


class NotPlaced(TurnoutError):
    """Others of its gang have no place yet: the runner asks again later."""


class Caller(NamedTuple):
    """A runner that has shown its attempt's token."""

    attempt: RemoteAttempt
    member: Member
    instance: str

    @property
    def project(self) -> str:
        return self.attempt.launch.project


class Ending(msgspec.Struct, frozen=True):
    """What a runner says of the end of its program."""

    restarts: int
    at: int
    cause: str
    code: int | None = None
    signal: int | None = None
    message: str = ""


class RunnerSample(msgspec.Struct, frozen=True):
    at: int
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


class RunnerCalls:
    def __init__(
        self,
        settings: RemoteSettings,
        attempts: Mapping[Attempt, RemoteAttempt],
        report: Callable[[Report], None],
        write: Write,
        logs: ReplicaLogs,
        transfers: Transfers,
        terminals: RemoteTerminals,
        lifecycle: Lifecycle,
        saving: Saving,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._report = report
        self._write = write
        self._logs = logs
        self.transfers = transfers
        self._terminals = terminals
        self._lifecycle = lifecycle
        self._saving = saving
        self._followers: dict[Attempt, set[asyncio.Event]] = {}
        self._appending: dict[tuple[Attempt, ReplicaName], asyncio.Lock] = {}
        self._hung: set[Attempt] = set()
        self._left: dict[Attempt, asyncio.Event] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._closed = False
        self.shared_variables: Callable[[Launch], dict[str, str]] = lambda launch: {}
        """The variables of all replicas of a gang."""

    @property
    def endpoint(self) -> str:
        """The URL of the service as nodes reach it."""
        return self._settings.call.endpoint

    @property
    def archive(self) -> tuple[str, str]:
        """The path and the hash of the runner."""
        return self._settings.call.archive, self._settings.call.digest

    def find(self, attempt: Attempt, replica: str, token: str, instance: str) -> Caller:
        """Raises Gone, Unauthenticated or NotFound."""
        found = self._attempts.get(attempt)
        if found is None:
            raise Gone(f"there is no attempt {attempt}")
        if not found.opens_with(token):
            raise Unauthenticated("the token is not that of this attempt")
        try:
            member = found.member(replica)
        except (KeyError, ValueError):
            raise NotFound(f"attempt {attempt} has no replica {replica!r}") from None
        if member.instance == instance:
            member.heard_at = time.monotonic()
        return Caller(found, member, instance)

    def holds(self, attempt: Attempt) -> bool:
        return attempt in self._attempts

    # The calls, in their usual order.

    async def claim(self, caller: Caller, handle: str, node: str) -> dict[str, Any]:
        """Grants the replica to the first runner that asks for it. Raises Fenced or Gone."""
        attempt, member = caller.attempt, caller.member
        async with attempt.lock:
            if attempt.leaving or (member.over and member.instance != caller.instance):
                raise Gone(f"{member.name} has ended")
            if member.instance not in ("", caller.instance):
                raise Fenced(f"another runner has {member.name}")
            if attempt.handle and handle and handle != attempt.handle:
                raise Fenced(f"{attempt.id} runs as {attempt.handle}, not as {handle}")
            if not member.instance and not self._lifecycle.is_placed(attempt.handle or handle):
                raise NotPlaced(f"{attempt.id} has no place for all of its replicas yet")
            facts: list[Fact] = []
            if handle and not attempt.handle:
                facts.append(Accepted(handle))
            if not member.instance:
                facts.append(Claimed(str(member.name), caller.instance, handle, node, time.time_ns()))
            if facts:
                await self._write(attempt, *facts)
                for fact in facts:
                    attempt.apply(fact)
                if isinstance(facts[0], Accepted):
                    # The answer to the submit was lost, or is still on its way.
                    self._report(Submitted(attempt.id, handle))
        launch = attempt.launch
        page = launch.spec.program_page and member.name == launch.replicas()[0][0]
        return {
            "granted": True,
            "restarts": member.restarts,
            "ports": self._settings.ports + page,
            "log_bytes": self._settings.log_bytes,
            "sample_seconds": self._settings.sample_seconds,
        }

    async def arrive(self, caller: Caller, arrival: Arrival) -> dict[str, Any]:
        """Waits until every member has arrived, then answers with the plan."""
        attempt, member = self._own(caller)
        if len(arrival.ports) < self._settings.ports:
            raise Invalid(f"ports: at least {self._settings.ports} are needed")
        if member.arrival is None:
            async with attempt.lock:
                if member.arrival is None:
                    fact = Arrived(str(member.name), arrival)
                    await self._write(attempt, fact)
                    attempt.apply(fact)
            if attempt.complete:
                attempt.wake_all()
        deadline = time.monotonic() + POLL_SECONDS
        while not self._closed:
            if attempt.leaving or member.over:
                return {"give_up": member.over.message if member.over else "the attempt is over"}
            if attempt.complete:
                return {"ready": True, "plan": await self._plan(attempt, member)}
            if not await self._woken(member, deadline):
                break
        return {"ready": False}

    async def _plan(self, attempt: RemoteAttempt, member: Member) -> NodePlan | None:
        launch = attempt.launch
        names, gang, hosts = attempt.roster
        rank = names.index(member.name)
        role = launch.replicas()[rank][1]
        mine = member.arrival
        assert mine is not None
        shared = {
            number: directory
            for number, mount in enumerate(launch.spec.mounts)
            if (directory := self._settings.shared_directory(mount.source)) is not None
        }
        python = self._settings.pythons.get(role.program.runtime, "")
        # Two nodes may have one name, as in tests on one machine.
        own_names = {name: mine.address for name in (member.node, mine.host) if name}
        hosts = {**hosts, **own_names}
        node = Node(mine.home, mine.python, mine.sandbox, mine.path, hosts, mine.mounted)
        try:
            return plan_on_node(
                launch,
                gang,
                rank,
                node,
                shared,
                python,
                self._settings.processes,
                self.shared_variables(launch),
            )
        except Impossible as error:
            await self._lifecycle.end(attempt, member, Cause.REFUSED, str(error), gone=False)
            raise Gone(str(error)) from None

    async def started(self, caller: Caller, restarts: int, pid: int, at: int) -> dict[str, Any]:
        attempt, member = self._own(caller)
        async with attempt.lock:
            if restarts == member.restarts and member.began is None and member.over is None:
                fact = Began(str(member.name), restarts, pid, min(at, time.time_ns()))
                await self._write(attempt, fact)
                attempt.apply(fact)
                report = attempt.started(member)
                if report:
                    self._report(report)
        return {}

    async def tell(
        self,
        caller: Caller,
        pieces: Sequence[Piece],
        marks: Sequence[RunnerMark],
        samples: Sequence[RunnerSample],
        idle: float | None,
        files: Mapping[str, str],
    ) -> dict[str, Any]:
        attempt, member = self._own(caller)
        project, name = attempt.launch.project, member.name
        lock = self._appending.setdefault((attempt.id, name), asyncio.Lock())
        async with lock:
            written = await pools.disk.run(project, self._logs.append, attempt.id, name, pieces, marks)
            chaos.point("remote.told")
            for path, text in files.items():
                plain = path.rpartition("/")[2]
                await pools.disk.run(project, self._logs.keep_file, attempt.id, name, plain, text.encode())
        if written.trimmed:
            self._report(Trimmed(attempt.id, name, time.time_ns(), f"the log of {name} was trimmed"))
        if samples:
            found = tuple(
                Sample(name, one.at, one.cpu, one.memory, one.gpu, one.gpu_memory) for one in samples
            )
            self._report(Sampled(attempt.id, found))
        if idle is not None:
            member.idle, member.idle_at = idle, time.monotonic()
            self._check_hung(attempt)
        self._notify(attempt.id)
        return {"sizes": list(written.sizes), "order": member.last_order}

    async def wait(self, caller: Caller, seen: int) -> dict[str, Any]:
        attempt, member = self._own(caller)
        deadline = time.monotonic() + POLL_SECONDS
        while not self._closed:
            orders = member.orders_after(seen)
            if orders:
                if any(order["kind"] == "leave" for order in orders):
                    member.instance = ""
                    self._left.setdefault(attempt.id, asyncio.Event()).set()
                return {"orders": orders, "order": member.last_order}
            if not await self._woken(member, deadline):
                break
        return {"orders": [], "order": min(seen, member.last_order)}

    async def ended(self, caller: Caller, ending: Ending) -> dict[str, Any]:
        attempt, member = self._own(caller)
        await pools.disk.run(attempt.launch.project, self._logs.finish, attempt.id, member.name)
        self._terminals.end_all(attempt.id, member.name)
        self._notify(attempt.id)
        if ending.restarts != member.restarts or member.over:
            return {}
        if ending.cause == TERMINATED:
            self._spawn(self._end_terminated(attempt, member))
            return {}
        try:
            cause = Cause(ending.cause)
        except ValueError:
            raise Invalid(f"cause: {ending.cause!r} is unknown") from None
        async with attempt.lock:
            if not member.over:
                at = min(ending.at, time.time_ns())
                over = Over(
                    str(member.name),
                    ending.restarts,
                    at,
                    cause,
                    ending.code,
                    ending.signal,
                    ending.message,
                )
                await self._write(attempt, over)
                attempt.apply(over)
                report = attempt.ended(member)
                if report:
                    self._report(report)
        return {}

    async def _end_terminated(self, attempt: RemoteAttempt, member: Member) -> None:
        cause, why = await self._lifecycle.why_terminated(attempt, member)
        await self._lifecycle.end(attempt, member, cause, why, gone=True)

    async def saved(self, caller: Caller, files: int, size: int, trouble: str) -> dict[str, Any]:
        attempt, member = self._own(caller)
        async with attempt.lock:
            if member.saved is None:
                fact = Stored(str(member.name), files, size, trouble)
                await self._write(attempt, fact)
                attempt.apply(fact)
        self._saving.check(attempt)
        chaos.point("remote.saved")
        return {}

    def terminal(self, caller: Caller, terminal: str) -> RemoteTerminal:
        attempt, member = self._own(caller)
        found = self._terminals.find(attempt.id, member.name, terminal)
        if found is None:
            raise NotFound("there is no such shell")
        return found

    def terminal_ended(self, terminal: RemoteTerminal, code: int | None) -> None:
        self._terminals.ended(terminal, code)

    def check_owner(self, caller: Caller) -> None:
        """Raises Fenced if another runner has the replica."""
        self._own(caller)

    def _own(self, caller: Caller) -> tuple[RemoteAttempt, Member]:
        if caller.member.instance != caller.instance:
            if caller.attempt.leaving:
                raise Gone("the attempt is over")
            raise Fenced(f"another runner has {caller.member.name}")
        return caller.attempt, caller.member

    # Waiting.

    async def _woken(self, member: Member, deadline: float) -> bool:
        """Waits for the member's event; False: the time is over."""
        member.wake.clear()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await member.wake.wait()
        except TimeoutError:
            return False
        return True

    async def left(self, attempt: RemoteAttempt) -> None:
        """Until every runner has got the order to leave."""
        while any(member.has_runner for member in attempt.members.values()):
            event = self._left.setdefault(attempt.id, asyncio.Event())
            event.clear()
            await event.wait()

    def forget(self, attempt: Attempt) -> None:
        self._left.pop(attempt, None)
        self._hung.discard(attempt)
        for key in [key for key in self._appending if key[0] == attempt]:
            del self._appending[key]

    def close(self) -> None:
        """Ends all calls that wait: the runners call the next service."""
        self._closed = True
        for attempt in self._attempts.values():
            attempt.wake_all()
        for task in self._asking:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    # Readers of logs, and gangs that hang.

    async def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        event = asyncio.Event()
        event.set()
        followers = self._followers.setdefault(attempt, set())
        followers.add(event)
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            followers.discard(event)
            if not followers:
                self._followers.pop(attempt, None)

    def _notify(self, attempt: Attempt) -> None:
        for event in self._followers.get(attempt, ()):
            event.set()

    def _check_hung(self, attempt: RemoteAttempt) -> None:
        limit = attempt.launch.spec.policy.hang_seconds
        if limit is None or attempt.id in self._hung:
            return
        running = [one for one in attempt.members.values() if one.began and not one.over]
        if running and all(one.idle is not None and one.idle >= limit for one in running):
            self._hung.add(attempt.id)
            message = f"no replica used CPU or did I/O for {limit:g} s"
            self._report(Hung(attempt.id, time.time_ns(), message))
