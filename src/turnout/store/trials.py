"""The trials of searches and what they measured. Control writes the trials; what they say on their way goes past it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from turnout.job import Measurement, Trial
from turnout.job.search import Point
from turnout.store import rows
from turnout.store.codes import TRIAL_STATES
from turnout.store.driver import Driver, Step
from turnout.store.statements import Statements
from turnout.store.writing import Writing

if TYPE_CHECKING:
    from turnout.store.locks import Locks

_STATE_OF = {code: state for state, code in TRIAL_STATES.items()}


class _Told(msgspec.Struct, array_like=True):
    """What a key protects. Not JSON, which knows no NaN."""

    parameters: Point
    value: float | None
    metrics: dict[str, float]
    message: str


_encode = msgspec.msgpack.Encoder().encode
_told = msgspec.msgpack.Decoder(_Told).decode
_metrics = msgspec.msgpack.Decoder(dict[str, float]).decode


class StoredTrials:
    def __init__(self, driver: Driver, sql: Statements, writing: Writing, locks: "Locks") -> None:
        self._driver = driver
        self._sql = sql
        self._writing = writing
        self._locks = locks

    async def of(self, job_id: int) -> list[Trial]:
        """By number. Those whose key is gone have no parameters."""
        if not rows.storable(job_id):
            return []
        found = await self._driver.each(self._sql.trials, [(job_id,)])
        return [self._trial(row) for row in found[0]]

    async def live(self) -> list[Trial]:
        """Those of live searches that are not over."""
        return [self._trial(row) for row in await self._driver.read(self._sql.live_trials)]

    async def measurements(self, job_id: int, number: int | None = None) -> list[Measurement]:
        """Of one trial or of all, by number and step."""
        if number is None:
            found = await self._driver.read(self._sql.all_measurements, (job_id,))
        else:
            found = await self._driver.read(self._sql.measurements, (job_id, number))
        return [one for row in found if (one := self._measurement(row))]

    async def cursor(self, job_id: int, number: int) -> bytes:
        """What was kept with the last measurements; empty if there were none."""
        found = (await self._driver.each(self._sql.cursor, [(job_id, number)]))[0]
        return bytes(found[0][0] or b"") if found else b""

    async def measured(
        self, job_id: int, number: int, measurements: Sequence[Measurement], cursor: bytes
    ) -> None:
        """Both in one commit. Raises StoreError."""

        async def change() -> list[Step]:
            return [
                *self.steps((), (), measurements),
                Step(self._sql.update_cursor, [(cursor, job_id, number)], changes=True),
            ]

        await self._writing.change(change)

    def steps(
        self, new: Sequence[Trial], changed: Sequence[Trial], measurements: Sequence[Measurement]
    ) -> Iterator[Step]:
        if new:
            yield Step(self._sql.insert_trial, [self._row(trial) for trial in new])
        if changed:
            found = [(*self._changes(trial), trial.job, trial.number) for trial in changed]
            yield Step(self._sql.update_trial, found, changes=True)
        if measurements:
            yield Step(
                self._sql.put_measurement,
                [
                    (one.job, one.number, one.step, one.at, self._locks.trial(one.job, _encode(one.metrics)))
                    for one in measurements
                ],
            )

    def _row(self, trial: Trial) -> rows.Row:
        key = trial.job, trial.number, trial.id, trial.algorithm, trial.child, trial.created
        return (*key, *self._changes(trial))

    def _changes(self, trial: Trial) -> rows.Row:
        told = _encode(_Told(trial.parameters, trial.value, trial.metrics, trial.message))
        return TRIAL_STATES[trial.state], trial.started, trial.ended, self._locks.trial(trial.job, told)

    def _trial(self, row: rows.Row) -> Trial:
        job, number, trial_id, algorithm, child, created, state, started, ended, data = row
        opened = self._locks.opened_trial(job, bytes(data))
        told = _told(opened) if opened else _Told({}, None, {}, "the key of its search is gone")
        return Trial(
            job=job,
            number=number,
            id=trial_id,
            algorithm=algorithm,
            parameters=told.parameters,
            child=child,
            created=created,
            state=_STATE_OF[state],
            value=told.value,
            metrics=told.metrics,
            started=started,
            ended=ended,
            message=told.message,
        )

    def _measurement(self, row: rows.Row) -> Measurement | None:
        job, number, step, at, data = row
        opened = self._locks.opened_trial(job, bytes(data))
        return None if opened is None else Measurement(job, number, step, at, _metrics(opened))
