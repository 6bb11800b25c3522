"""The user that the processes of each attempt run as, and the user names in the sandbox."""

from pathlib import Path

from turnout.engines.local.machine import sandbox
from turnout.engines.local.users.account import Accounts
from turnout.job import Attempt
from turnout.runner.plan import Layout


class JobUsers:
    """`etc`: the sandbox's /etc; None: there is no sandbox."""

    def __init__(self, accounts: Accounts, etc: Path | None) -> None:
        self._accounts = accounts
        self._etc = etc
        self._names_written = 0
        self._uids: dict[Attempt, int] = {}
        self._write_names()

    def layout(self, layout: Layout, project: str) -> Layout:
        """The layout for a job of this project. Raises TurnoutError or OSError."""
        account = self._accounts.of(project)
        self._write_names()
        return layout._replace(user=account.name, uid=account.uid if account.other else 0, group=account.gid)

    def claimed(self, attempt: Attempt, uid: int) -> None:
        """Records the uid of an attempt. 0: the supervisor's own, as for all jobs if the service is not root and for
        jobs of earlier versions.
        """
        self._uids[attempt] = uid

    def forget(self, attempt: Attempt) -> None:
        self._uids.pop(attempt, None)

    def uid(self, attempt: Attempt) -> int | None:
        """None: the service's own uid."""
        supervisor = self._accounts.supervisor
        return (self._uids.get(attempt) or supervisor.uid) if supervisor.other else None

    def _write_names(self) -> None:
        # Jobs that an earlier version started run as the supervisor's user.
        known = {self._accounts.supervisor, *self._accounts.all}
        if self._etc and len(known) != self._names_written:
            sandbox.write_users(self._etc, sorted(known))
            self._names_written = len(known)
