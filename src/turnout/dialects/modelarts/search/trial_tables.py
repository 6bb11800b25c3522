"""The tables in which ModelArts shows the trials of a search."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from turnout.dialects.modelarts.jobs.parameters import as_text
from turnout.dialects.modelarts.search.trial_jobs import trial_config
from turnout.job import Measurement, Search, Trial, TrialState
from turnout.job.search import Metric, Value

STATUS: dict[TrialState, str] = {
    TrialState.REQUESTED: "PENDING",
    TrialState.ACTIVE: "RUNNING",
    TrialState.STOPPING: "RUNNING",
    TrialState.SUCCEEDED: "TERMINATED",
    TrialState.INFEASIBLE: "ERROR",
}
ENDED = (TrialState.SUCCEEDED, TrialState.INFEASIBLE)
_SECOND = 1_000_000_000

Table = dict[str, Any]


class TrialReport(NamedTuple):
    """A trial with its measurements and the id of its process."""

    trial: Trial
    measurements: Sequence[Measurement]
    pid: int | None = None


def render_trials(reports: Sequence[TrialReport], search: Search, now: int) -> Table:
    """A row for each trial, in the order of their starts."""
    metrics = [metric.name for metric in search.metrics]
    head = ["", "done", "pid", "config", "trial_id", "training_iteration", "time_total_s", "worker_index"]
    rows: list[list[Any]] = []
    for report in reports:
        trial = report.trial
        values = trial.metrics or (report.measurements[-1].metrics if report.measurements else {})
        reward = trial.value if trial.value is not None else values.get(search.metric.name)
        rows.append(
            [
                str(trial.number),
                str(trial.state in ENDED),
                as_text(report.pid),
                _config_cell(trial),
                trial.id,
                str(len(report.measurements)),
                _seconds(trial, trial.ended or now),
                "",
                as_text(reward),
                STATUS[trial.state],
                *(as_text(values.get(name)) for name in metrics),
                as_text(_best(search.metric, report.measurements, reward)),
            ]
        )
    return {"header": [*head, "reward_attr", "status", *metrics, "best_reward"], "data": rows}


def render_trial(report: TrialReport, search: Search, now: int) -> Table:
    """A row for each measurement of a trial. The last one is done when the trial is."""
    trial, reward = report.trial, search.metric
    metrics = [metric.name for metric in search.metrics]
    measurements = list(report.measurements) or [
        Measurement(trial.job, trial.number, 0, trial.ended or now, trial.metrics)
    ]
    known: dict[str, float] = {}
    rows: list[list[Any]] = []
    for index, measurement in enumerate(measurements):
        known |= measurement.metrics
        is_last = index == len(measurements) - 1
        until = trial.ended if is_last and trial.ended else measurement.at
        rows.append(
            [
                str(is_last and trial.state in ENDED),
                as_text(report.pid),
                as_text(_best(reward, measurements[: index + 1], None)),
                _seconds(trial, until),
                _config_cell(trial),
                *(as_text(known.get(name)) for name in metrics),
                trial.id,
                str(index + 1 if report.measurements else 0),
                as_text(known.get(reward.name)),
            ]
        )
    head = ["done", "pid", "best_reward", "time_total_s", "config", *metrics]
    return {"header": [*head, "trial_id", "training_iteration", "reward_attr"], "data": rows}


def render_importance(weights: Sequence[tuple[str, float, float]]) -> Table:
    rows = [[name, f"{mean:.4f}/{std:.4f}"] for name, mean, std in weights]
    return {"header": ["parameters", "the mean/std of importance"], "data": rows}


def picture_path(stored: Mapping[str, Any], name: str) -> str:
    """The path for the picture of a parameter: in the log path, else in the first output. Empty if there is neither."""
    outputs = stored["algorithm"].get("outputs") or ()
    urls = [(stored["spec"].get("log_export_path") or {}).get("obs_url")]
    urls += [output["remote"]["obs"]["obs_url"] for output in outputs]
    root = next((url for url in urls if url), "")
    return f"{root.rstrip('/')}/hyperparameter-analysis/fanova/{name}.png" if root else ""


def _config_cell(trial: Trial) -> dict[str, Value]:
    config = trial_config(trial)
    return config | {f"param/{name}": config[name] for name in trial.parameters}


def _best(metric: Metric, measurements: Sequence[Measurement], reward: float | None) -> float | None:
    values = [
        measurement.metrics[metric.name] for measurement in measurements if metric.name in measurement.metrics
    ]
    values += [] if reward is None else [reward]
    if not values:
        return None
    return max(values) if metric.goal == "max" else min(values)


def _seconds(trial: Trial, until: int) -> str:
    if trial.started is None:
        return ""
    return str(max(0, until - trial.started) / _SECOND)
