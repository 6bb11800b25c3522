"""What the remote engine knows of one attempt: its record, and the orders that its runners have not received yet."""

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from turnout.engines.remote.records import (
    Accepted,
    Again,
    Arrival,
    Arrived,
    Began,
    Claimed,
    Fact,
    Launched,
    Over,
    Record,
    Stored,
)
from turnout.job import Attempt, Ended, Launch, Peer, ReplicaName, Started
from turnout.job.conventions import convention

Order = dict[str, Any]
"""`kind`, and what belongs to it: see `docs/clusters.md`."""

_ROUNDING = 2.0
"""A cluster may give its times in whole seconds."""


@dataclass(slots=True)
class Member:
    """One replica and its runner."""

    name: ReplicaName
    instance: str = ""
    """The runner that has claimed it; empty: none has yet."""
    handle: str = ""
    """The gang on the cluster that the runner belongs to."""
    node: str = ""
    arrival: Arrival | None = None
    restarts: int = 0
    began: Began | None = None
    """The current start; None before it."""
    over: Over | None = None
    """The end of the current start; None while it runs or will run."""
    heard_at: float = 0.0
    """When its runner last called, by the monotonic clock."""
    pinged_at: float = 0.0
    """When its runner was last told to call, by the monotonic clock."""
    claimed_at: int = 0
    """Nanoseconds since 1970."""
    orders: list[tuple[int, Order]] = field(default_factory=list[tuple[int, Order]])
    last_order: int = field(default_factory=lambda: time.time_ns() // 1000)
    """The number of its last order. Runners remember it, and the next service must not use it for another one."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a new order, or the gang is complete."""
    gone: bool = False
    """Its runner is not there any more, although its program has ended well."""
    saving: bool = False
    saved: Stored | None = None
    idle: float | None = None
    """Seconds for which the program has done nothing, as its runner last said."""
    idle_at: float = 0.0
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files of the program that its runner sent."""

    def order(self, kind: str, **details: Any) -> None:
        self.last_order += 1
        self.orders.append((self.last_order, {"kind": kind, **details}))
        self.wake.set()

    def orders_after(self, seen: int) -> list[Order]:
        """A runner that has seen more than there is got its orders from an earlier service: it gets all of these."""
        seen = seen if seen <= self.last_order else 0
        self.orders = [one for one in self.orders if one[0] > seen]
        return [{"number": number, **order} for number, order in self.orders]

    @property
    def runs(self) -> bool:
        """Whether a runner has it, and its end is not known."""
        return bool(self.instance) and self.over is None

    @property
    def has_runner(self) -> bool:
        """Whether a runner is, or may be, there."""
        return bool(self.instance) and not self.gone and not (self.over and self.over.runner_gone)


class Roster(NamedTuple):
    """Where the members of a gang are. None of it changes once all have arrived."""

    names: list[ReplicaName]
    """In the order of ranks."""
    gang: tuple[Peer, ...]
    hosts: dict[str, str]
    """The addresses of the nodes by their names."""


class RemoteAttempt:
    def __init__(self, launch: Launch, token: str, record: Record, launched_at: int) -> None:
        self.launch = launch
        self.launched_at = launched_at
        self.record = record
        self.handle = ""
        self.waits_because = ""
        self.members = {name: Member(name) for name, _ in launch.replicas()}
        self.lock = asyncio.Lock()
        """Held while a fact is checked, written and applied."""
        self.first_claim_at = 0.0
        self.leaving = False
        """Forgotten: its runners only have to leave."""
        self.listed_at = time.monotonic()
        """When the cluster last listed it, or it was submitted, by the monotonic clock."""
        self.cluster_ended_at: float | None = None
        """When the cluster first said that none of its runners is alive, by the monotonic clock."""
        self._token = token
        self._missing = {str(name) for name in self.members}
        """Members that have not arrived."""

    @staticmethod
    def new(launch: Launch, record: Record, runner: str) -> "tuple[RemoteAttempt, Launched]":
        """`runner`: its digest."""
        token, now = secrets.token_urlsafe(32), time.time_ns()
        return RemoteAttempt(launch, token, record, now), Launched(launch, token, now, runner)

    @staticmethod
    def recorded(facts: list[Fact], record: Record) -> "RemoteAttempt":
        first = facts[0]
        assert isinstance(first, Launched)
        attempt = RemoteAttempt(first.launch, first.token, record, first.at)
        for fact in facts[1:]:
            attempt.apply(fact)
        return attempt

    @property
    def id(self) -> Attempt:
        return self.launch.attempt

    @property
    def name(self) -> str:
        """Its name on the cluster."""
        return f"turnout-{self.launch.attempt}"

    @property
    def token(self) -> str:
        return self._token

    def opens_with(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    @property
    def complete(self) -> bool:
        """Whether every member has arrived, so that each can be told where the others are."""
        return not self._missing

    @cached_property
    def roster(self) -> Roster:
        """Only when it is complete. Each member asks for it, and there may be thousands."""
        host = convention(self.launch.dialect).host
        names = [name for name, _ in self.launch.replicas()]
        gang: list[Peer] = []
        hosts: dict[str, str] = {}
        for name in names:
            member = self.members[name]
            assert member.arrival is not None
            gang.append(Peer(name, host(self.launch, name), member.arrival.address, member.arrival.ports))
            if member.node:
                hosts[member.node] = member.arrival.address
        return Roster(names, tuple(gang), hosts)

    @property
    def over(self) -> bool:
        """Whether no program of it runs or will run."""
        return all(member.over for member in self.members.values())

    @property
    def claimed(self) -> bool:
        return any(member.instance for member in self.members.values())

    def started_again(self, waited: float | None) -> bool:
        """Whether the cluster's last start of the gang, after it had waited so long, came after a runner's claim.

        Only durations are compared: the clocks of the cluster and of this machine may differ.
        """
        claims = [member.claimed_at for member in self.members.values() if member.claimed_at]
        if waited is None or not claims or not self.launched_at:
            return False
        return waited > (min(claims) - self.launched_at) / 1e9 + _ROUNDING

    def apply(self, fact: Fact) -> None:
        match fact:
            case Accepted(handle):
                self.handle = handle
                self.listed_at = time.monotonic()
            case Claimed(replica, instance, handle, node, at):
                member = self.member(replica)
                member.claimed_at = at
                member.instance, member.handle, member.node = instance, handle, node
                member.heard_at = time.monotonic()
                self.first_claim_at = self.first_claim_at or member.heard_at
            case Arrived(replica, arrival):
                self.member(replica).arrival = arrival
                self._missing.discard(replica)
            case Began(replica, restarts, _, _):
                member = self.member(replica)
                member.restarts, member.began, member.over = restarts, fact, None
            case Over(replica, restarts):
                member = self.member(replica)
                member.restarts, member.over = restarts, fact
            case Again(replica, restarts):
                member = self.member(replica)
                member.restarts, member.began, member.over = restarts, None, None
            case Stored(replica):
                member = self.member(replica)
                member.saving, member.saved = False, fact
            case Launched():
                pass

    def member(self, replica: str) -> Member:
        return self.members[ReplicaName.parse(replica)]

    def started(self, member: Member) -> Started | None:
        """The report of the member's current start."""
        began = member.began
        if began is None:
            return None
        address = member.arrival.address if member.arrival else ""
        return Started(self.id, member.name, began.at, began.pid, address, began.restarts, member.node)

    def ended(self, member: Member) -> Ended | None:
        over = member.over
        if over is None:
            return None
        return Ended(
            self.id, member.name, over.at, over.cause, over.code, over.signal, over.message, over.restarts
        )

    def wake_all(self) -> None:
        for member in self.members.values():
            member.wake.set()
