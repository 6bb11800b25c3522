"""Gives each job the environments of its runtimes. While they are made, the job's events show the progress."""

import time
from collections.abc import Callable

from turnout.engines.local.environments.definition import Definition
from turnout.engines.local.environments.environments import Environments
from turnout.engines.local.machine.runtimes import Runtimes
from turnout.job import Launch, Noted, Pending, Report


class EnvironmentProvider:
    def __init__(
        self, runtimes: Runtimes, environments: Environments, report: Callable[[Report], None]
    ) -> None:
        self._runtimes = runtimes
        self._environments = environments
        self._report = report

    def missing(self, launch: Launch) -> list[Definition]:
        """The environments that have to be made before the job can start."""
        return [one for one in self._wanted(launch) if not self._environments.is_made(one)]

    async def provide(self, launch: Launch) -> None:
        """Makes what is missing, or waits for it if it is being made already. Raises MakingFailed."""
        missing = self.missing(launch)
        for definition in missing:
            self._report(
                Pending(
                    launch.attempt,
                    f"The environment of the runtime {definition.runtime} ({definition.packages}) is being made; the "
                    "job starts when it is ready.",
                )
            )
            await self._environments.make(definition, lambda line: self._note(launch, line))
        if missing:
            self._report(Pending(launch.attempt, ""))

    def used(self, launch: Launch) -> None:
        """The job is about to start."""
        for definition in self._wanted(launch):
            self._environments.used(definition)
            has = self._environments.contents(definition)
            self._note(
                launch, f"the runtime {definition.runtime} is Python {definition.python.version} with {has}"
            )

    def _wanted(self, launch: Launch) -> list[Definition]:
        names = dict.fromkeys(role.program.runtime for role in launch.spec.roles)
        found = (self._runtimes.definition(name) for name in names)
        return list({one.key: one for one in found if one}.values())

    def _note(self, launch: Launch, line: str) -> None:
        self._report(Noted(launch.attempt, time.time_ns(), line))
