"""Saves the outputs of an attempt: each runner uploads what its replica has changed."""

import asyncio
import time
from collections.abc import Callable, Mapping

from turnout.engines.remote.attempt import Member, RemoteAttempt
from turnout.engines.remote.exports import LogExports
from turnout.job import Attempt, Report, Saved


class Saving:
    def __init__(
        self,
        attempts: Mapping[Attempt, RemoteAttempt],
        report: Callable[[Report], None],
        exports: LogExports,
    ) -> None:
        self._attempts = attempts
        self._report = report
        self._exports = exports
        self._begun: set[Attempt] = set()
        self._finishing: dict[Attempt, asyncio.Task[None]] = {}

    def begin(self, attempt: Attempt) -> None:
        """May be called again: runners save what has changed since the last time."""
        one = self._attempts.get(attempt)
        if one is None:
            lost = "the cluster does not hold the attempt any more"
            self._report(Saved(attempt, time.time_ns(), lost))
            return
        for member in one.members.values():
            if member.has_runner and not member.saved and not member.saving:
                member.saving = True
                member.order("save")
        self._begun.add(attempt)
        self.check(one)

    def check_lost(self, attempt: RemoteAttempt) -> None:
        """A runner is gone: if it was saving, nobody waits for it any more."""
        if any(member.saving for member in attempt.members.values()):
            self.check(attempt)

    def check(self, attempt: RemoteAttempt) -> None:
        """Reports once nobody has anything left to save.

        After a restart of the service a runner may say again that it has saved before the others are asked to.
        """
        if attempt.id not in self._begun:
            return
        members = attempt.members.values()
        if any(member.saving and member.has_runner for member in members):
            return
        lost = [str(member.name) for member in members if _lost_outputs(attempt, member)]
        saved = [member.saved for member in members if member.saved]
        trouble = next((f"{one.replica}: {one.trouble}" for one in saved if one.trouble), "")
        if lost and not trouble:
            trouble = f"the runner of {', '.join(lost)} is gone, and its files with it"
        if attempt.id not in self._finishing:
            task = asyncio.get_running_loop().create_task(self._finish(attempt, trouble))
            self._finishing[attempt.id] = task

    async def _finish(self, attempt: RemoteAttempt, trouble: str) -> None:
        trouble = trouble or await self._exports.finish(attempt.launch)
        saved = [member.saved for member in attempt.members.values() if member.saved]
        files, size = sum(one.files for one in saved), sum(one.size for one in saved)
        targets = ", ".join(mount.source for mount in attempt.launch.spec.mounts if not mount.read_only)
        counted = "1 file" if files == 1 else f"{files} files"
        message = f"{counted} ({size} bytes) went to {targets}" if files else ""
        self._report(Saved(attempt.id, time.time_ns(), trouble, message))
        del self._finishing[attempt.id]
        self._begun.discard(attempt.id)


def _lost_outputs(attempt: RemoteAttempt, member: Member) -> bool:
    writes = any(not mount.read_only for mount in attempt.launch.spec.mounts)
    return writes and member.began is not None and not member.saved
