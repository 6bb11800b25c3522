"""The trials of a search: each as a job of its own, and all of them as the tables that ModelArts shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import auto_search, parameters, places, program, translate, wire
from turnout.job import Measurement, NewJob, Search, Trial, TrialState
from turnout.job.search import Metric, Value
from turnout.service import JobView

SCOPE = "trial"
LABEL = "trial_of"
STATUS: dict[TrialState, str] = {
    TrialState.REQUESTED: "PENDING",
    TrialState.ACTIVE: "RUNNING",
    TrialState.STOPPING: "RUNNING",
    TrialState.SUCCEEDED: "TERMINATED",
    TrialState.INFEASIBLE: "ERROR",
}
ENDED = (TrialState.SUCCEEDED, TrialState.INFEASIBLE)
_SECOND = 1_000_000_000
_encode = msgspec.json.Encoder().encode

Table = dict[str, Any]


class Told(NamedTuple):
    """A trial with what it has said of itself, and the process that said it."""

    trial: Trial
    measurements: Sequence[Measurement]
    pid: int | None = None


def trial_jobs(settings: config.Settings) -> Callable[[JobView, Trial], NewJob]:
    """What makes jobs of trials here."""

    def make(parent: JobView, trial: Trial) -> NewJob:
        return trial_job(parent, trial, settings)

    return make


def trial_job(parent: JobView, trial: Trial, settings: config.Settings) -> NewJob:
    """The parent's job with the trial's values; what it writes goes to a directory of the trial's own."""
    kept: dict[str, Any] = msgspec.json.decode(parent.document)
    by_file = kept["algorithm"].get("autosearch_config_path")
    framework = kept["algorithm"].get("autosearch_framework_path") if by_file else None
    _change(kept, trial)
    # What its algorithm had for it is all there.
    whole = kept | {
        "algorithm": kept["algorithm"] | {"id": None, "subscription_id": None, "item_version_id": None}
    }
    searched = program.Searched(
        places.source(framework, "algorithm.autosearch_framework_path") if framework else "",
        _encode(config_of(trial)).decode(),
    )
    place = translate.Place(parent.job.project, settings, kept["metadata"].get("user_name", ""))
    document = msgspec.convert(whole, wire.Job)
    new = translate.new_job(document, place, None, searched=searched if by_file else None)
    return msgspec.structs.replace(
        new,
        scope=f"{SCOPE}:{parent.job.id}",
        handle=trial.id,
        cluster=parent.job.cluster,
        document=_encode(kept),
        notes=(),
        labels={LABEL: str(parent.job.id)},
    )


def config_of(trial: Trial) -> dict[str, Value]:
    """What a trial tries, numbers as numbers."""
    return {name: _number(value) for name, value in trial.parameters.items()} | {"trial_index": trial.number}


def table(told: Sequence[Told], search: Search, now: int) -> Table:
    """A row for each trial, in the order in which they were begun."""
    metrics = [metric.name for metric in search.metrics]
    head = ["", "done", "pid", "config", "trial_id", "training_iteration", "time_total_s", "worker_index"]
    rows: list[list[Any]] = []
    for one in told:
        trial = one.trial
        values = trial.metrics or (one.measurements[-1].metrics if one.measurements else {})
        decided = trial.value if trial.value is not None else values.get(search.metric.name)
        rows.append(
            [
                str(trial.number),
                str(trial.state in ENDED),
                _text(one.pid),
                _shown_config(trial),
                trial.id,
                str(len(one.measurements)),
                _seconds(trial, trial.ended or now),
                "",
                _text(decided),
                STATUS[trial.state],
                *(_text(values.get(name)) for name in metrics),
                _text(_best(search.metric, one.measurements, decided)),
            ]
        )
    return {"header": [*head, "reward_attr", "status", *metrics, "best_reward"], "data": rows}


def history(told: Told, search: Search, now: int) -> Table:
    """A row for each report of a trial; the last one is done when the trial is."""
    trial, decides = told.trial, search.metric
    metrics = [metric.name for metric in search.metrics]
    reports = list(told.measurements) or [
        Measurement(trial.job, trial.number, 0, trial.ended or now, trial.metrics)
    ]
    known: dict[str, float] = {}
    rows: list[list[Any]] = []
    for index, report in enumerate(reports):
        known |= report.metrics
        is_last = index == len(reports) - 1
        until = trial.ended if is_last and trial.ended else report.at
        rows.append(
            [
                str(is_last and trial.state in ENDED),
                _text(told.pid),
                _text(_best(decides, reports[: index + 1], None)),
                _seconds(trial, until),
                _shown_config(trial),
                *(_text(known.get(name)) for name in metrics),
                trial.id,
                str(index + 1 if told.measurements else 0),
                _text(known.get(decides.name)),
            ]
        )
    head = ["done", "pid", "best_reward", "time_total_s", "config", *metrics]
    return {"header": [*head, "trial_id", "training_iteration", "reward_attr"], "data": rows}


def analysis(weights: Sequence[tuple[str, float, float]]) -> Table:
    rows = [[name, f"{mean:.4f}/{std:.4f}"] for name, mean, std in weights]
    return {"header": ["parameters", "the mean/std of importance"], "data": rows}


def picture_place(kept: Mapping[str, Any], name: str) -> str:
    """Where the picture of a parameter goes: with the logs, or else with what the job writes. Empty: nowhere."""
    outputs = kept["algorithm"].get("outputs") or ()
    urls = [(kept["spec"].get("log_export_path") or {}).get("obs_url")]
    urls += [output["remote"]["obs"]["obs_url"] for output in outputs]
    root = next((url for url in urls if url), "")
    return f"{root.rstrip('/')}/hyperparameter-analysis/fanova/{name}.png" if root else ""


def _change(kept: dict[str, Any], trial: Trial) -> None:
    kept["metadata"] = kept["metadata"] | {"name": f"{kept['metadata']['name'][:55]}-{trial.id}"}
    algorithm = {
        key: value
        for key, value in kept["algorithm"].items()
        if key not in ("autosearch_config_path", "autosearch_framework_path")
    }
    algorithm["policies"] = {}
    algorithm["parameters"] = [
        one | {"value": auto_search.spelt(trial.parameters[one["name"]])}
        if one["name"] in trial.parameters
        else one
        for one in algorithm.get("parameters") or ()
    ]
    if algorithm.get("outputs"):
        algorithm["outputs"] = [
            one | {"remote": {"obs": _below(one["remote"]["obs"], trial)}} for one in algorithm["outputs"]
        ]
    kept["algorithm"] = algorithm
    logs = kept["spec"].get("log_export_path") or {}
    if logs.get("obs_url"):
        kept["spec"]["log_export_path"] = _below(logs, trial)


def _below(place: dict[str, Any], trial: Trial) -> dict[str, Any]:
    return place | {"obs_url": f"{place['obs_url'].rstrip('/')}/{trial.id}/"}


def _shown_config(trial: Trial) -> dict[str, Value]:
    shown = config_of(trial)
    return shown | {f"param/{name}": shown[name] for name in trial.parameters}


def _number(value: Value) -> Value:
    """Discrete values come as they were spelt."""
    if not isinstance(value, str) or parameters.number(value) is None:
        return value
    return int(value) if parameters.fits("Integer", value) and len(value) < 19 else float(value)


def _best(metric: Metric, measurements: Sequence[Measurement], decided: float | None) -> float | None:
    values = [one.metrics[metric.name] for one in measurements if metric.name in one.metrics]
    values += [] if decided is None else [decided]
    if not values:
        return None
    return max(values) if metric.goal == "max" else min(values)


def _seconds(trial: Trial, until: int) -> str:
    if trial.started is None:
        return ""
    return str(max(0, until - trial.started) / _SECOND)


def _text(value: float | None) -> str:
    return "" if value is None else str(value)
