"""An engine that keeps only the promises of its protocol, in a network that keeps none."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from turnout.engines import Refused, Traits, Unreachable
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    Hung,
    Launch,
    Node,
    Pending,
    ReplicaName,
    Report,
    Saved,
    Started,
    Submitted,
    Synced,
)

EXITS = [(Cause.EXIT, 0, None)] * 4 + [
    (Cause.EXIT, 3, None),
    (Cause.EXIT, None, 9),
    (Cause.LOST, None, None),
    (Cause.OUT_OF_MEMORY, None, None),
    (Cause.TIME_LIMIT, None, None),
    (Cause.STOPPED, None, None),
]


class Failed(Exception):
    """An engine's own mistake, after it did what it was asked for."""


@dataclass
class Process:
    """One replica, as it really is."""

    restarts: int = 0
    started: Started | None = None
    ended: Ended | None = None
    told_to_stop: bool = False


@dataclass
class Gang:
    processes: dict[ReplicaName, Process] = field(default_factory=dict)
    twice: bool = False
    """The engine started it again by mistake."""
    unannounced: bool = False
    """The controller has every reason to believe that the engine does not have it."""

    @property
    def runs(self) -> bool:
        return any(process.ended is None for process in self.processes.values())

    @property
    def runs_freely(self) -> bool:
        """Something runs that nobody has told to stop."""
        told = all(one.ended or one.told_to_stop for one in self.processes.values())
        return not told and not self.unannounced


class Adversary:
    def __init__(self, name: str, traits: Traits, nodes: tuple[Node, ...], clock: Callable[[], int]) -> None:
        self.name, self.traits, self.nodes, self.clock = name, traits, nodes, clock
        self.held: dict[Attempt, Gang] = {}
        self.lost: dict[Attempt, Gang] = {}
        """What it runs, but does not remember."""
        self.wire: list[Report] = []
        """Reports on their way."""
        self.sent: deque[Report] = deque(maxlen=100)
        self.moods: deque[str] = deque()
        """How the next calls go."""
        self.gate = asyncio.Event()
        """Slow calls wait for it."""
        self.inbox: asyncio.Queue[Report] = asyncio.Queue()
        self.disturbed = False
        """A report was lost or came in an order that no connection has: only a new connection helps."""
        self.on_call: Callable[[str], None] = lambda text: None
        self.on_delivery: Callable[[Report], None] = lambda report: None
        self.pids = 0

    # What the controller calls.

    def remember(self, submitted: Mapping[Attempt, str]) -> None: ...

    async def reports(self) -> AsyncIterator[Report]:
        self.inbox = asyncio.Queue()
        # Old reports may still come, but what an engine holds is only ever said on a connection of its own.
        self.sent = deque((one for one in self.sent if not isinstance(one, Synced)), maxlen=self.sent.maxlen)
        self.connect()
        while True:
            yield await self.inbox.get()

    async def start(self, launch: Launch) -> None:
        for attempt, gang in self.held.items():
            if attempt.job == launch.attempt.job and attempt != launch.attempt:
                assert not gang.runs_freely, f"{attempt} runs when {launch.attempt} starts"
        fresh = launch.attempt not in self.held
        await self._called(f"start {launch.attempt}", lambda: self._start(launch), refuses=fresh)

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        what = f"restart {launch.attempt} {replica} {restarts}"
        await self._called(what, lambda: self._restart(launch, replica, restarts), refuses=restarts > 0)

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        what = f"stop {attempt} {' '.join(map(str, replicas))}"
        await self._called(what, lambda: self._stop(attempt, replicas))

    async def save(self, attempt: Attempt) -> None:
        await self._called(f"save {attempt}", lambda: self.wire.append(Saved(attempt, self.clock())))

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        await self._called(f"forget {attempt}", lambda: self._forget(attempt))

    async def remove(self, attempts: list[Attempt]) -> None:
        await self._called(f"remove {' '.join(map(str, attempts))}", lambda: None)

    async def _called(self, what: str, act: Callable[[], object], refuses: bool = False) -> None:
        mood = self.moods.popleft() if self.moods else ""
        self.on_call(f"{self.name}: {what}{' (' * bool(mood)}{mood}{')' * bool(mood)}")
        match mood:
            case "unreachable":
                raise Unreachable("no answer")
            case "answer lost":
                act()
                raise Unreachable("no answer, but it is done")
            case "slow":
                await self.gate.wait()
                act()
            case "slow answer":
                act()
                await self.gate.wait()
            case "refused" if refuses:
                raise Refused("not here")
            case "fails" if refuses:
                act()
                raise Failed
            case _:
                act()

    def _start(self, launch: Launch) -> None:
        gang = self.held.setdefault(launch.attempt, Gang(twice=launch.attempt in self.lost))
        for name, _ in launch.replicas():
            gang.processes.setdefault(name, Process())
        if self.traits.pending is not None:
            self.wire += [Submitted(launch.attempt, str(launch.attempt)), Pending(launch.attempt, "it waits")]

    def _restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        gang = self.held.get(launch.attempt)
        process = gang and gang.processes.get(replica)
        if gang and (process is None or (process.ended and restarts == process.restarts + 1)):
            gang.processes[replica] = Process(restarts)

    def _stop(self, attempt: Attempt, replicas: tuple[ReplicaName, ...]) -> None:
        gang = self.held.get(attempt) or self.lost.get(attempt)
        for name, process in gang.processes.items() if gang else ():
            if not replicas or name in replicas:
                process.told_to_stop = True

    def _forget(self, attempt: Attempt) -> None:
        gang = self.held.get(attempt)
        if gang is None:
            return
        assert gang.twice or not gang.runs_freely, f"{attempt} runs when it is forgotten"
        if not gang.runs:
            del self.held[attempt]

    # What happens there.

    def connect(self) -> None:
        """A new connection: everything that it holds, then Synced."""
        self.disturbed = False
        self.wire = [Capacity(self.nodes)]
        for attempt, gang in self.held.items():
            if self.traits.pending is not None:
                self.wire.append(Submitted(attempt, str(attempt)))
            for process in gang.processes.values():
                self.wire += [one for one in (process.started, process.ended) if one]
        self.wire.append(Synced(frozenset(self.held)))

    def one_starts(self, attempt: Attempt, name: ReplicaName, at: int) -> None:
        process = self.held[attempt].processes[name]
        self.pids += 1
        node = "n1" if self.traits.pending is not None else ""
        process.started = Started(attempt, name, at, self.pids, "10.0.0.9", process.restarts, node)
        self.wire.append(process.started)

    def one_ends(self, attempt: Attempt, name: ReplicaName, at: int, chance: Random) -> None:
        process = self.held[attempt].processes[name]
        cause, code, signal = chance.choice(EXITS)
        if process.told_to_stop and chance.random() < 0.8:
            cause, code, signal = Cause.STOPPED, None, None
        process.ended = Ended(attempt, name, at, cause, code, signal, restarts=process.restarts)
        self.wire.append(process.ended)

    def one_hangs(self, attempt: Attempt, at: int) -> None:
        self.wire.append(Hung(attempt, at, "no CPU was used"))

    def loses_its_memory(self) -> None:
        self.lost |= self.held
        self.held = {}
        for gang in self.lost.values():
            gang.unannounced = True
        self.connect()

    def remembers(self) -> None:
        self.held = self.lost | self.held
        self.lost = {}
        self.connect()

    def is_rebooted(self) -> None:
        self.held, self.lost, self.wire = {}, {}, []
        self.sent.clear()

    # The network.

    def deliver(self, number: int, *, again: bool = False) -> None:
        """Delivers one of the reports on the wire; `again`: and keeps a copy of it there."""
        report = self.wire[number]
        ahead = self.wire[:number]
        if any(isinstance(one, Synced | Capacity) for one in (*ahead, *([report] * (number > 0 or again)))):
            self.disturbed = True
        if not again:
            del self.wire[number]
        self._send(report)

    def deliver_all(self) -> None:
        while self.wire:
            self.deliver(0)

    def replay(self, chance: Random) -> None:
        report = chance.choice(self.sent)
        if isinstance(report, Synced | Capacity):
            self.disturbed = True
        self._send(report)

    def drop(self, number: int) -> None:
        del self.wire[number]
        self.disturbed = True

    def _send(self, report: Report) -> None:
        self.sent.append(report)
        self.on_delivery(report)
        self.inbox.put_nowait(report)

    def heard_of(self, held: frozenset[Attempt]) -> None:
        """The controller has processed a report that the engine holds these."""
        for attempt in held & self.held.keys():
            self.held[attempt].unannounced = False

    def where(self, test: Callable[[Process], bool]) -> list[tuple[Attempt, ReplicaName]]:
        return [
            (attempt, name)
            for attempt, gang in self.held.items()
            for name, process in gang.processes.items()
            if test(process)
        ]
