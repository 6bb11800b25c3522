"""What the remote engine knows of one attempt: what its record says, and which orders its runners have not got yet."""

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

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
)
from turnout.job import Attempt, Ended, Launch, ReplicaName, Started

Order = dict[str, Any]
"""`kind`, and what belongs to it: see `docs/clusters.md`."""


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
    orders: list[tuple[int, Order]] = field(default_factory=list[tuple[int, Order]])
    last_order: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a new order, or the gang is complete."""
    gone: bool = False
    """Its runner is not there any more, although its program has ended well."""
    saving: bool = False
    saved: bool = False
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


class RemoteAttempt:
    def __init__(self, launch: Launch, token: str, record: Record) -> None:
        self.launch = launch
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

    @staticmethod
    def new(launch: Launch, record: Record) -> "tuple[RemoteAttempt, Launched]":
        token = secrets.token_urlsafe(32)
        return RemoteAttempt(launch, token, record), Launched(launch, token)

    @staticmethod
    def recorded(facts: list[Fact], record: Record) -> "RemoteAttempt":
        first = facts[0]
        assert isinstance(first, Launched)
        attempt = RemoteAttempt(first.launch, first.token, record)
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
        return all(member.arrival for member in self.members.values())

    @property
    def over(self) -> bool:
        """Whether no program of it runs or will run."""
        return all(member.over for member in self.members.values())

    @property
    def claimed(self) -> bool:
        return any(member.instance for member in self.members.values())

    def apply(self, fact: Fact) -> None:
        match fact:
            case Accepted(handle):
                self.handle = handle
                self.listed_at = time.monotonic()
            case Claimed(replica, instance, handle, node):
                member = self.member(replica)
                member.instance, member.handle, member.node = instance, handle, node
                member.heard_at = time.monotonic()
                self.first_claim_at = self.first_claim_at or member.heard_at
            case Arrived(replica, arrival):
                self.member(replica).arrival = arrival
            case Began(replica, restarts, _, _):
                member = self.member(replica)
                member.restarts, member.began, member.over = restarts, fact, None
            case Over(replica, restarts):
                member = self.member(replica)
                member.restarts, member.over = restarts, fact
            case Again(replica, restarts):
                member = self.member(replica)
                member.restarts, member.began, member.over = restarts, None, None
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
