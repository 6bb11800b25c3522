"""Turns the supervisor's messages into reports for the controller, and keeps track of the gangs that it holds."""

import asyncio
import time
from collections.abc import Set as AbstractSet

from turnout.engines.local.data.staging import Staging
from turnout.engines.local.gang_sockets import GangSockets
from turnout.engines.local.images.job_images import JobImages
from turnout.engines.local.leases import Leases
from turnout.engines.local.logs.followers import LogFollowers
from turnout.engines.local.supervisor import unreadable
from turnout.engines.local.supervisor.messages import (
    GangClaim,
    ReplicaEnded,
    ReplicaStarted,
    SupervisorMessage,
)
from turnout.engines.local.usage.sampler import Sampler
from turnout.engines.local.users.job_users import JobUsers
from turnout.job import Attempt, Cause, Ended, ReplicaName, Report, Started, Synced, Trimmed

_UNREADABLE = "a message of the supervisor about it could not be read"


class Reporter:
    """`starting`: attempts that are being prepared, of which the supervisor does not know yet."""

    def __init__(
        self,
        reports: asyncio.Queue[Report],
        starting: AbstractSet[Attempt],
        leases: Leases,
        users: JobUsers,
        sockets: GangSockets,
        sampler: Sampler,
        staging: Staging,
        followers: LogFollowers,
        images: JobImages,
    ) -> None:
        self._reports = reports
        self._starting = starting
        self._leases = leases
        self._users = users
        self._sockets = sockets
        self._sampler = sampler
        self._staging = staging
        self._followers = followers
        self._images = images
        self._held: set[Attempt] = set()
        self._partial: set[Attempt] = set()
        """Held, but not all of their members are known."""
        self._damaged: set[Attempt] = set()
        """A message about them could not be read, so they are being stopped."""

    def received(self, message: SupervisorMessage) -> None:
        if message.started:
            self._started(message.started)
        elif message.ended:
            self._ended(message.ended)
        elif message.claim:
            self._claimed(message.claim)
        elif message.trimmed:
            attempt, name, at, text = message.trimmed
            self._reports.put_nowait(Trimmed(Attempt.parse(attempt), ReplicaName.parse(name), at, text))
        elif message.hello:
            # What follows is everything that the supervisor holds.
            self._held.clear()
            self._partial.clear()
        elif message.synced:
            # The controller ends gangs of which not all members are known.
            self._images.synced()
            held = (self._held - self._partial) | self._starting
            self._reports.put_nowait(Synced(frozenset(held)))

    def received_unreadable(self, line: bytes) -> Attempt | None:
        """Returns the attempt to stop, because its state is unknown now; None: there is none."""
        subject = unreadable.subject_of(line)
        if subject is None or subject.kind == "trimmed":
            return None
        attempt = subject.attempt
        self._held.add(attempt)
        if subject.kind == "ended" and subject.replica:
            now, restarts = time.time_ns(), subject.restarts
            end = Ended(attempt, subject.replica, now, Cause.LOST, message=_UNREADABLE, restarts=restarts)
            self._reports.put_nowait(end)
            return None
        self._damaged.add(attempt)
        return attempt

    def forget(self, attempt: Attempt) -> None:
        self._held.discard(attempt)
        self._damaged.discard(attempt)

    def _started(self, line: ReplicaStarted) -> None:
        attempt, replica = Attempt.parse(line.a), ReplicaName.parse(line.name)
        self._held.add(attempt)
        self._sampler.started(attempt, replica, line.pid, line.at)
        address = self._leases.address(attempt, line.name)
        self._reports.put_nowait(Started(attempt, replica, line.at, line.pid, address, line.restarts))

    def _ended(self, line: ReplicaEnded) -> None:
        attempt, replica = Attempt.parse(line.a), ReplicaName.parse(line.name)
        self._held.add(attempt)
        self._sampler.ended(attempt, replica)
        cause, message = Cause(line.cause), line.message
        if attempt in self._damaged and cause is Cause.STOPPED:
            cause, message = Cause.LOST, _UNREADABLE
        end = Ended(attempt, replica, line.at, cause, line.code, line.signal, message, line.restarts)
        self._reports.put_nowait(end)
        self._followers.notify(attempt)

    def _claimed(self, claim: GangClaim) -> None:
        attempt = Attempt.parse(claim.a)
        self._held.add(attempt)
        if claim.partial:
            self._partial.add(attempt)
        self._leases.restore(attempt, claim.note)
        self._sockets.claimed(attempt, claim.network)
        self._users.claimed(attempt, claim.user)
        self._sampler.expect(attempt, claim.allowance)
        self._staging.watch(attempt)
        self._images.restore(attempt, claim.images)
