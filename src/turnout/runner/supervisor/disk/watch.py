"""Stops replicas whose workspace and /tmp exceed their disk limit.

Most file systems have no quota for a directory, so the directories are measured: in another process, because that can
take long, and only as often as needed. Two cheap facts show the need: how much is left to the limit, and how fast the
whole file system fills.
"""

import itertools
import json
import os
import socket
from collections.abc import Callable

from ..diagnostics import Outage
from ..gang import Gang, Replica
from ..loop import Loop
from ..replicas.spares import SPACE
from . import usage

DISK_LIMIT = "disk limit"
"""A value of `turnout.job.Cause`."""

_TICK = 1.0
_MAX_PAUSE = 30.0
"""Seconds between two measurements of a directory at most."""
_FAST_WRITER = 256 << 20
"""Bytes per second: a replica that could reach its limit at this speed before the next measurement is measured earlier.
"""
_IDLE_FACTOR = 5
"""A measurement is followed by a pause of this many times its duration."""
_RETRY_SECONDS = 5.0
_KILL_FACTOR = 1.1
"""A replica that exceeds its limit by this factor is killed at once, because it goes on writing."""

Stop = Callable[[Gang, list[Replica], str, float], None]
"""With the cause, and the seconds before KILL."""


class _Watched:
    __slots__ = ("due", "free", "limit", "measuring", "not_before", "number", "replica", "used", "was_over")

    def __init__(self, replica: Replica, number: int) -> None:
        self.replica = replica
        self.number = number
        self.limit = replica.disk_limit
        self.used = 0
        self.due: float | None = None
        """When it is measured next; None: it has just started."""
        self.not_before = 0.0
        """It is not measured before this time."""
        self.free = 0
        """Free bytes of the file system at the last measurement."""
        self.measuring = False
        self.was_over = False
        """The last measurement exceeded the limit. A program that moves files may be counted twice, so it is measured
        again before it is stopped.
        """

    @property
    def pause(self) -> float:
        return min(_MAX_PAUSE, max(_TICK, (self.limit - self.used) / _FAST_WRITER))

    def is_due(self, now: float, free: int) -> bool:
        if self.due is None:
            self.due, self.free = now + self.pause - _TICK, free
        if self.measuring or now < self.not_before:
            return False
        return now >= self.due or self.free - free > (self.limit - self.used) / 2


class DiskWatch:
    """`stop` is called for a replica that exceeds its limit, repeatedly until it has ended. `watch_helper` gets the id
    of each process that is started.
    """

    def __init__(self, loop: Loop, attempts: str, stop: Stop, watch_helper: Callable[[int], None]) -> None:
        self._loop = loop
        self._attempts = attempts
        self._stop = stop
        self._watch_helper = watch_helper
        self._watched: dict[Replica, _Watched] = {}
        self._measuring: dict[int, _Watched] = {}
        self._number = itertools.count()
        self._ticking = False
        self._measurer: socket.socket | None = None
        self._free = 0
        self._outage = Outage("the disk that jobs use cannot be measured")

    def watch(self, replica: Replica) -> None:
        """Measures nothing yet: most replicas end before their first measurement."""
        if not replica.disk_limit:
            return
        self._watched[replica] = _Watched(replica, next(self._number))
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(_TICK, self._tick)

    def forget(self, replica: Replica) -> None:
        watched = self._watched.pop(replica, None)
        if watched and self._measuring.pop(watched.number, None):
            self._send([watched.number])

    def _tick(self) -> None:
        self._ticking = bool(self._watched)
        if not self._ticking:
            self._disconnect()
            return
        self._loop.call_later(_TICK, self._tick)
        now, free = self._loop.clock(), self._read_free_bytes()
        for watched in list(self._watched.values()):
            if watched.is_due(now, free):
                self._measure(watched, free)

    def _measure(self, watched: _Watched, free: int) -> None:
        watched.free = free
        replica = watched.replica
        directory = f"{replica.directory}/{SPACE}"
        marker = f"{replica.gang.attempt}/{replica.name}"
        if self._send([watched.number, replica.user, directory, watched.limit, replica.pid, marker]):
            watched.measuring = True
            self._measuring[watched.number] = watched

    def _send(self, packet: list[object]) -> bool:
        """False if the packet cannot be sent now."""
        try:
            measurer = self._measurer or self._start()
            measurer.send(json.dumps(packet).encode())
        except BlockingIOError:
            return False
        except OSError as error:
            self._outage.failed(error)
            self._disconnect()
            return False
        self._outage.recovered()
        return True

    def _start(self) -> socket.socket:
        pid, self._measurer = usage.start()
        self._watch_helper(pid)
        self._loop.add(self._measurer.fileno(), self._receive)
        return self._measurer

    def _receive(self) -> None:
        try:
            packet = self._measurer.recv(1 << 12) if self._measurer else b""
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._disconnect()
            return
        number, used, seconds = json.loads(packet)
        watched = self._measuring.pop(number, None)
        if watched:
            self._on_measured(watched, used, seconds)

    def _on_measured(self, watched: _Watched, used: int, seconds: float) -> None:
        now = self._loop.clock()
        watched.measuring, watched.used = False, used
        watched.not_before = now + _IDLE_FACTOR * seconds
        watched.due = now + watched.pause
        confirmed, watched.was_over = watched.was_over, used > watched.limit
        if watched.was_over and not confirmed:
            self._measure(watched, self._free)
        elif watched.was_over:
            self._stop_replica(watched.replica, used)

    def _stop_replica(self, replica: Replica, used: int) -> None:
        if replica.ended or replica.exit or replica.cause not in ("", DISK_LIMIT):
            return
        replica.cause_detail = replica.cause_detail or describe_usage(used, replica.disk_limit)
        grace = 0 if used > replica.disk_limit * _KILL_FACTOR else replica.gang.grace
        self._stop(replica.gang, [replica], DISK_LIMIT, grace)

    def _disconnect(self) -> None:
        """Closes the connection, or notices that the process has ended. Another one is started when it is needed."""
        if self._measurer:
            self._loop.remove(self._measurer.fileno())
            self._measurer.close()
            self._measurer = None
        for watched in self._measuring.values():
            watched.measuring, watched.not_before = False, self._loop.clock() + _RETRY_SECONDS
        self._measuring.clear()

    def _read_free_bytes(self) -> int:
        """Free bytes of the file system. They decrease when any process writes."""
        try:
            status = os.statvfs(self._attempts)
        except OSError:
            return self._free
        self._free = status.f_bfree * status.f_frsize
        return self._free


def describe_usage(used: int, limit: int) -> str:
    """`used 12.3 GB of 10 GB`. As in the clouds, a GB has 2^30 bytes."""
    unit, name = (1 << 30, "GB") if limit >= 1 << 30 else (1 << 20, "MB")
    digits = next((few for few in (1, 2, 3) if round(used / unit, few) > round(limit / unit, few)), 6)
    return f"used {round(used / unit, digits):g} {name} of {round(limit / unit, digits):g} {name}"
