"""The trials of searches and their measurements. The controller writes trials; searches write measurements."""

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import TYPE_CHECKING

import msgspec

from turnout.job import Measurement, Trial, TrialState
from turnout.job.search import Point
from turnout.store import rows
from turnout.store.codes import TRIAL_STATES
from turnout.store.driver import Driver, Step
from turnout.store.shapes import RowShape
from turnout.store.statements import Statements
from turnout.store.unreadable import UnreadableRows
from turnout.store.write_queue import WriteQueue

if TYPE_CHECKING:
    from turnout.store.encryption import StoreEncryption

_STATE_OF = {code: state for state, code in TRIAL_STATES.items()}


class _TrialData(msgspec.Struct, array_like=True):
    """The part that is encrypted if the search has a key. Not stored as JSON, which has no NaN."""

    parameters: Point
    value: float | None
    metrics: dict[str, float]
    message: str


_integer, _optional = (int,), (int, NoneType)
_TRIAL = RowShape(
    job=_integer,
    number=_integer,
    id=(str,),
    algorithm=_integer,
    child=_integer,
    created=_integer,
    state=_integer,
    started=_optional,
    ended=_optional,
    told=(bytes,),
)
_MEASUREMENT = RowShape(job=_integer, number=_integer, step=_integer, at=_integer, told=(bytes,))

_encode = msgspec.msgpack.Encoder().encode
_trial_data = msgspec.msgpack.Decoder(_TrialData).decode
_metrics = msgspec.msgpack.Decoder(dict[str, float]).decode


class StoredTrials:
    def __init__(
        self,
        driver: Driver,
        sql: Statements,
        queue: WriteQueue,
        encryption: "StoreEncryption",
        unreadable: UnreadableRows,
    ) -> None:
        self._driver = driver
        self._sql = sql
        self._queue = queue
        self._encryption = encryption
        self._unreadable = unreadable

    async def of(self, job_id: int) -> list[Trial]:
        """The trials of a search, by number. If the key is missing, they have no parameters."""
        if not rows.storable(job_id):
            return []
        found = await self._driver.read_each(self._sql.trials, [(job_id,)])
        return self.read(found[0])

    def read(self, found: list[rows.Row]) -> list[Trial]:
        return self._unreadable.read_rows(found, self._trial, "trial of job", 2)

    async def page(self, job_id: int, first: int, limit: int) -> list[rows.Row]:
        """The rows of at most so many trials, from this number on, for `read`, which is slow for many rows."""
        return await self._driver.read(self._sql.trials_page, (job_id, first, limit))

    async def counts(self, ids: Sequence[int]) -> list[dict[TrialState, int]]:
        """How many trials of each search are in each state."""
        found = await self._driver.read_each(self._sql.trial_counts, [(job_id,) for job_id in ids])
        return [{_STATE_OF[state]: count for state, count in counted} for counted in found]

    async def measurements(self, job_id: int, number: int | None = None) -> list[Measurement]:
        """The measurements of one trial or of all, by number and step."""
        if number is None:
            found = await self._driver.read(self._sql.all_measurements, (job_id,))
        else:
            found = await self._driver.read(self._sql.measurements, (job_id, number))
        return self.read_measurements(found)

    async def measured_trials(self, job_id: int) -> dict[int, int]:
        """The number of measurements of each trial that has any, by the trial's number."""
        return dict(await self._driver.read(self._sql.measured, (job_id,)))

    async def measurement_rows(self, job_id: int, number: int) -> list[rows.Row]:
        """The rows of one trial, by step, for `read_measurements`, which is slow for many rows."""
        return await self._driver.read(self._sql.measurements, (job_id, number))

    def read_measurements(self, found: Sequence[rows.Row]) -> list[Measurement]:
        """Can be called in any thread."""
        return [
            measurement
            for measurement in self._unreadable.read_rows(found, self._measurement, "measurement of job", 3)
            if measurement
        ]

    async def cursor(self, job_id: int, number: int) -> bytes:
        """The cursor that was stored with the last measurements; empty if there were none."""
        found = (await self._driver.read_each(self._sql.cursor, [(job_id, number)]))[0]
        kept = found[0][0] if found else None
        return bytes(kept) if isinstance(kept, bytes | memoryview) else b""

    async def measured(
        self,
        job_id: int,
        number: int,
        measurements: Sequence[Measurement],
        cursor: bytes,
        dropped: Sequence[int] = (),
    ) -> None:
        """Stores these measurements and the cursor in one commit. `dropped`: steps to delete. Raises StoreError."""

        async def change() -> list[Step]:
            return [
                *(
                    [Step(self._sql.delete_measurement, [(job_id, number, step) for step in dropped])]
                    if dropped
                    else ()
                ),
                *self.steps((), (), measurements),
                Step(self._sql.update_cursor, [(cursor, job_id, number)], changes=True),
            ]

        await self._queue.change(change)

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
                    (
                        measurement.job,
                        measurement.number,
                        measurement.step,
                        measurement.at,
                        self._encryption.trial(measurement.job, _encode(measurement.metrics)),
                    )
                    for measurement in measurements
                ],
            )

    def _row(self, trial: Trial) -> rows.Row:
        key = trial.job, trial.number, trial.id, trial.algorithm, trial.child, trial.created
        return (*key, *self._changes(trial))

    def _changes(self, trial: Trial) -> rows.Row:
        encoded = _encode(_TrialData(trial.parameters, trial.value, trial.metrics, trial.message))
        return (
            TRIAL_STATES[trial.state],
            trial.started,
            trial.ended,
            self._encryption.trial(trial.job, encoded),
        )

    def _trial(self, row: rows.Row) -> Trial:
        _TRIAL.check(row)
        job, number, trial_id, algorithm, child, created, state, started, ended, data = row
        opened = self._encryption.opened_trial(job, bytes(data))
        found = (
            _trial_data(opened) if opened else _TrialData({}, None, {}, "the key of its search is missing")
        )
        return Trial(
            job=job,
            number=number,
            id=trial_id,
            algorithm=algorithm,
            parameters=found.parameters,
            child=child,
            created=created,
            state=_STATE_OF[state],
            value=found.value,
            metrics=found.metrics,
            started=started,
            ended=ended,
            message=found.message,
        )

    def _measurement(self, row: rows.Row) -> Measurement | None:
        _MEASUREMENT.check(row)
        job, number, step, at, data = row
        opened = self._encryption.opened_trial(job, bytes(data))
        return None if opened is None else Measurement(job, number, step, at, _metrics(opened))
