"""The logs of all replicas: opened at the start, marked while they grow, closed at the end.

The first write to a log fires a one-shot inotify watch on the replica's directory. The log is marked, and the watch is
armed again a millisecond later. So a program that prints without pause costs one mark each millisecond, not one for
each write.
"""

from collections.abc import Callable
from typing import Any, Protocol

from ..gang import Gang, Replica
from ..loop import READ, Loop
from ..replicas.spares import BOX
from .marks import PlainLog, StreamPipes, Watcher
from .sealed_log import LogEncrypters, SealedLog, remove_workspace

_REARM_SECONDS = 0.001
_RETRY_SECONDS = 1.0
_BUSY_LOGS = 8
"""With more logs than this growing at a time, each one is marked less often, so that the work stays the same."""


class Record(Protocol):
    def __call__(self, gang: Gang, *lines: dict[str, Any]) -> None: ...


class ReplicaLogs:
    """`watch_helper` gets the id of each process that is started here. `send` goes to the service, `record` to the
    journal and the service.
    """

    def __init__(
        self,
        loop: Loop,
        encrypters: LogEncrypters,
        watch_helper: Callable[[int], None],
        send: Callable[[dict[str, Any]], None],
        record: Record,
    ) -> None:
        self._loop = loop
        self._encrypters = encrypters
        self._watch_helper = watch_helper
        self._send = send
        self._record = record
        self._watcher = Watcher()
        self._growing = 0
        """How many logs were written to and wait for their watch to be armed again."""
        self._followed: set[str] = set()
        self._unmarked: list[PlainLog] = []
        """Logs of ended replicas whose last mark did not fit on a full disk."""
        loop.add(self._watcher.fd, self._watcher.ready)

    # For the service.

    def follow(self, attempt: str) -> None:
        """Tells the service from now on when a log of the attempt grows."""
        self._followed.add(attempt)
        # It may have grown after the service last read it.
        self._send({"grew": attempt})

    def unfollow(self, attempt: str) -> None:
        self._followed.discard(attempt)

    def unfollow_all(self) -> None:
        self._followed.clear()

    # Start.

    def open(self, replica: Replica) -> None:
        """Raises OSError."""
        if replica.gang.sealed:
            replica.log = SealedLog(replica.directory, replica.gang.log_bytes)
            replica.log.adopt(*replica.encrypter)
        else:
            replica.log = PlainLog(replica.directory, replica.gang.log_bytes)
        # Not at once: a replica that ends before that needs only its last mark.
        self._loop.call_later(2 * _REARM_SECONDS, lambda: self._arm(replica))

    def start_encrypter(self, replica: Replica, key: dict[str, str]) -> None:
        """Does nothing for a log that is not sealed. Raises OSError."""
        if isinstance(replica.log, SealedLog):
            replica.log.start_encrypter(self._encrypters, key, replica.sandboxed, replica.user)
            pid, start_time = replica.log.pid, replica.log.start_time
            self._watch_helper(pid)
            self._record(replica.gang, {"pump": [replica.gang.attempt, replica.name, pid, start_time]})

    def read_pipes(self, replica: Replica) -> None:
        """Starts to copy what the program writes to /dev/stdout and /dev/stderr by name. Raises OSError.

        A program that opens one of them earlier waits until then.
        """
        if isinstance(replica.log, PlainLog) and replica.sandboxed:
            pipes = replica.pipes = StreamPipes(f"{replica.directory}/{BOX}/out", replica.log, replica.user)
            for number, fd in enumerate(pipes.fds):
                self._loop.add(fd, lambda number=number: self._copy(replica, pipes, number))

    def _copy(self, replica: Replica, pipes: StreamPipes, number: int) -> None:
        """On a full disk the pipe is left alone for a while, and the program that writes to it waits."""
        if not pipes.copy(number):
            self._loop.modify(pipes.fds[number], 0)
            self._loop.call_later(_RETRY_SECONDS, lambda: self._copy_again(replica, pipes, number))

    def _copy_again(self, replica: Replica, pipes: StreamPipes, number: int) -> None:
        if replica.pipes is pipes:
            self._loop.modify(pipes.fds[number], READ)
            self._copy(replica, pipes, number)

    # While it runs.

    def _arm(self, replica: Replica) -> None:
        if replica.log is None or replica.ended:
            return
        # The watch before the mark: a write in between is noticed by one of them.
        replica.watch = self._watcher.arm(replica.directory, lambda: self._on_write(replica))
        self._mark(replica)

    def _on_write(self, replica: Replica) -> None:
        replica.watch = -1
        self._mark(replica)
        self._growing += 1
        pause = _REARM_SECONDS * max(1, self._growing // _BUSY_LOGS)
        self._loop.call_later(pause, lambda: self._arm_again(replica))

    def _arm_again(self, replica: Replica) -> None:
        self._growing -= 1
        self._arm(replica)

    def _mark(self, replica: Replica) -> None:
        log, attempt = replica.log, replica.gang.attempt
        if log is None or not log.mark():
            return
        if attempt in self._followed:
            self._send({"grew": attempt})
        if log.trim() and not replica.trimmed:
            replica.trimmed = True
            kept = "its first MiB and its newest part are kept"
            message = f"the log of {replica.name} grew beyond {log.limit} bytes: {kept}"
            line = {"trimmed": [attempt, replica.name, replica.gang.timestamp(), message]}
            self._record(replica.gang, line)

    # End.

    def unwatch(self, replica: Replica) -> None:
        self._watcher.disarm(replica.watch)

    def finish_sealed(self, replica: Replica, then: Callable[[], None]) -> None:
        """Calls `then` when the whole output is encrypted on disk and the workspace is removed. Raises OSError."""

        def remove() -> None:
            self._watch_helper(remove_workspace(replica.directory, replica.user, self._loop, then))

        if isinstance(replica.log, SealedLog):
            replica.log.finish(self._loop, remove)
        else:
            remove()

    def close(self, replica: Replica) -> None:
        """Writes the last mark."""
        if replica.pipes:
            for fd in replica.pipes.fds:
                self._loop.remove(fd)
            replica.pipes.close()
            replica.pipes = None
        if replica.log:
            self._mark(replica)
            replica.printed = replica.log.printed
            self._close(replica.log)
            replica.log = None

    @property
    def behind(self) -> bool:
        """Some last mark could not be written: call `catch_up` after a while."""
        return bool(self._unmarked)

    def catch_up(self) -> None:
        waiting, self._unmarked = self._unmarked, []
        for log in waiting:
            log.mark()
            self._close(log)

    def _close(self, log: PlainLog | SealedLog) -> None:
        if isinstance(log, PlainLog) and log.behind:
            self._unmarked.append(log)
        else:
            log.close()
