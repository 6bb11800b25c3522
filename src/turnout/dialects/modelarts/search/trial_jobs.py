"""The job of a trial: the search's job with the trial's values."""

from typing import Any

import msgspec

from turnout import config
from turnout.dialects.modelarts import locations, translate, wire
from turnout.dialects.modelarts.jobs import parameters
from turnout.dialects.modelarts.names import TRIAL_SCOPE
from turnout.dialects.modelarts.program import build
from turnout.dialects.modelarts.search import definition
from turnout.job import NewJob, Trial
from turnout.job.search import Value
from turnout.service import JobView
from turnout.service.images import ImageRules

LABEL = "trial_of"
_encode = msgspec.json.Encoder().encode


def trial_job(
    parent: JobView, trial: Trial, settings: config.Settings, images: ImageRules | None = None
) -> NewJob:
    """The search's job with the trial's values. Its outputs and logs go to a directory of the trial."""
    stored: dict[str, Any] = msgspec.json.decode(parent.document)
    by_file = stored["algorithm"].get("autosearch_config_path")
    framework = stored["algorithm"].get("autosearch_framework_path") if by_file else None
    _apply_values(stored, trial)
    # The stored document has all that came from the algorithm.
    complete = stored | {
        "algorithm": stored["algorithm"] | {"id": None, "subscription_id": None, "item_version_id": None}
    }
    trial_inputs = build.TrialInputs(
        locations.source(framework, "algorithm.autosearch_framework_path") if framework else "",
        _encode(trial_config(trial)).decode(),
    )
    translation = translate.TranslationContext(
        parent.job.project, settings, stored["metadata"].get("user_name", ""), images
    )
    document = msgspec.convert(complete, wire.Job)
    new = translate.new_job(document, translation, None, trial_inputs=trial_inputs if by_file else None)
    return msgspec.structs.replace(
        new,
        scope=f"{TRIAL_SCOPE}:{parent.job.id}",
        handle=trial.id,
        cluster=parent.job.cluster,
        document=_encode(stored),
        notes=(),
        labels={LABEL: str(parent.job.id)},
    )


def trial_config(trial: Trial) -> dict[str, Value]:
    """The trial's values, with numbers as numbers."""
    return {name: _number(value) for name, value in trial.parameters.items()} | {"trial_index": trial.number}


def _apply_values(stored: dict[str, Any], trial: Trial) -> None:
    stored["metadata"] = stored["metadata"] | {"name": f"{stored['metadata']['name'][:55]}-{trial.id}"}
    algorithm = {
        key: value
        for key, value in stored["algorithm"].items()
        if key not in ("autosearch_config_path", "autosearch_framework_path")
    }
    algorithm["policies"] = {}
    algorithm["parameters"] = [
        parameter | {"value": definition.as_argument(trial.parameters[parameter["name"]])}
        if parameter["name"] in trial.parameters
        else parameter
        for parameter in algorithm.get("parameters") or ()
    ]
    if algorithm.get("outputs"):
        algorithm["outputs"] = [
            output | {"remote": {"obs": _in_trial_dir(output["remote"]["obs"], trial)}}
            for output in algorithm["outputs"]
        ]
    stored["algorithm"] = algorithm
    logs = stored["spec"].get("log_export_path") or {}
    if logs.get("obs_url"):
        stored["spec"]["log_export_path"] = _in_trial_dir(logs, trial)


def _in_trial_dir(location: dict[str, Any], trial: Trial) -> dict[str, Any]:
    return location | {"obs_url": f"{location['obs_url'].rstrip('/')}/{trial.id}/"}


def _number(value: Value) -> Value:
    """Discrete values are text, as in the request."""
    if not isinstance(value, str) or parameters.parse_number(value) is None:
        return value
    return int(value) if parameters.has_type("Integer", value) and len(value) < 19 else float(value)
