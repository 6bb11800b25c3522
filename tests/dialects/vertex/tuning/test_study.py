"""Hyperparameter tuning jobs as searches, and their trials as custom jobs."""

from typing import Any

import msgspec
import pytest
from google.cloud import aiplatform_v1

from tests.dialects.vertex import jobs
from turnout.config import Settings
from turnout.dialects.vertex import render, translate
from turnout.dialects.vertex.protobuf import codec, enum_numbers, schema
from turnout.dialects.vertex.tuning import trials
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import Message
from turnout.errors import Invalid, TurnoutError, Unsupported
from turnout.job import Job, Measurement, NewJob, Search, State, Trial, TrialState
from turnout.job.search import Condition
from turnout.service import JobView

SECOND = 1_000_000_000

STUDY: dict[str, Any] = {
    "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [
        {
            "parameterId": "lr",
            "doubleValueSpec": {"minValue": 0.001, "maxValue": 1},
            "scaleType": "UNIT_LOG_SCALE",
        },
        {"parameterId": "batch", "discreteValueSpec": {"values": [16, 32]}},
    ],
}


def tuning(study: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "displayName": "tune",
        "studySpec": STUDY | (study or {}),
        "maxTrialCount": 8,
        "parallelTrialCount": 2,
        "trialJobSpec": jobs.job()["jobSpec"]
        | {"baseOutputDirectory": {"outputUriPrefix": "gs://models/run/"}},
    } | fields


def translated(document: dict[str, Any]) -> NewJob:
    return translate.new_tuning_job(codec.tuning_job(msgspec.json.encode(document)), jobs.HERE)


def search_of(study: dict[str, Any] | None = None, **fields: Any) -> Search:
    found = translated(tuning(study, **fields)).spec.search
    assert found is not None
    return found


def parent(document: dict[str, Any], **fields: Any) -> JobView:
    new = translated(document)
    row: dict[str, Any] = {"state": State.RUNNING, "priority": 1, "created": SECOND, "updated": SECOND}
    job = Job(5, "p1", new.dialect, new.scope, "", new.name, new.cluster, **(row | fields))
    return JobView(job, (), new.document)


def trial(**fields: Any) -> Trial:
    usual: dict[str, Any] = {"parameters": {"lr": 0.5, "batch": 16.0}, "child": 77, "created": 0}
    return Trial(5, 2, "ae544170", 0, **(usual | fields))


def test_a_study_is_a_search():
    search = search_of({"measurementSelectionType": "BEST_MEASUREMENT"}, maxFailedTrialCount=3)
    lr, batch = search.parameters
    assert (lr.kind, lr.low, lr.high, lr.scale) == ("float", 0.001, 1, "log")
    assert (batch.kind, batch.values) == ("discrete", (16, 32))
    assert (search.metric.name, search.metric.goal, search.measurement) == ("accuracy", "max", "best")
    assert (search.max_trials, search.parallel, search.max_failed) == (8, 2, 3)
    assert [one.name for one in search.algorithms] == ["default"]


def test_whole_and_grid_and_random_and_stopping():
    depth = {"parameterId": "depth", "integerValueSpec": {"minValue": "1", "maxValue": "4"}}
    search = search_of({"parameters": [depth], "algorithm": "GRID_SEARCH", "medianAutomatedStoppingSpec": {}})
    assert (search.parameters[0].kind, search.algorithms[0].name) == ("integer", "grid")
    assert search.stopping is not None
    assert (search.stopping.kind, search.stopping.by) == ("median", "steps")
    search = search_of({"algorithm": 3, "decayCurveStoppingSpec": {"useElapsedDuration": True}})
    assert search.algorithms[0].name == "random"
    assert search.stopping is not None
    assert (search.stopping.kind, search.stopping.by) == ("decay_curve", "seconds")


def test_conditions_come_behind_their_parents():
    momentum = {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    optimizer = {
        "parameterId": "optimizer",
        "categoricalValueSpec": {"values": ["sgd", "adam"]},
        "conditionalParameterSpecs": [
            {"parentCategoricalValues": {"values": ["sgd"]}, "parameterSpec": momentum}
        ],
    }
    first, second = search_of({"parameters": [optimizer]}).parameters
    assert (first.name, second.name) == ("optimizer", "momentum")
    assert second.condition == Condition("optimizer", ("sgd",))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"displayName": ""}, "displayName"),
        ({"studySpec": None}, "studySpec"),
        ({"trialJobSpec": None}, "trialJobSpec"),
        ({"trialJobSpec": {}}, "trialJobSpec.workerPoolSpecs"),
        ({"maxTrialCount": 0}, "maxTrialCount"),
        ({"parallelTrialCount": -1}, "parallelTrialCount"),
        ({"maxFailedTrialCount": -1}, "maxFailedTrialCount"),
        ({"studySpec": STUDY | {"metrics": []}}, "studySpec.metrics"),
        ({"studySpec": STUDY | {"metrics": [{"metricId": "a b"}]}}, "studySpec.metrics[0].metricId"),
        ({"studySpec": STUDY | {"parameters": []}}, "studySpec.parameters"),
        ({"studySpec": STUDY | {"parameters": [{"parameterId": "a"}]}}, "studySpec.parameters[0]"),
        ({"studySpec": STUDY | {"algorithm": "GRID_SEARCH"}}, "studySpec.parameters[0].doubleValueSpec"),
        (
            {"study_spec": STUDY | {"parameters": STUDY["parameters"] * 2}, "studySpec": None},
            "study_spec.parameters[2]",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], field: str):
    document = {key: value for key, value in (tuning() | change).items() if value is not None}
    with pytest.raises(Invalid) as caught:
        translated(document)
    assert caught.value.field == field
    assert field in caught.value.message


@pytest.mark.parametrize("name", ["convexAutomatedStoppingSpec", "studyStoppingConfig"])
def test_what_is_not_done_here(name: str):
    with pytest.raises(Unsupported, match=name):
        translated(tuning({name: {}}))


def test_what_is_nested_without_end_is_refused():
    spec: dict[str, Any] = {"parameterId": "a"}
    for _ in range(300):
        spec = {"parameterId": "a", "conditionalParameterSpecs": [{"parameterSpec": spec}]}
    with pytest.raises(TurnoutError):
        translated(tuning({"parameters": [spec]}))


def test_the_time_limit_is_each_trials():
    document = tuning()
    document["trialJobSpec"]["scheduling"] = {"timeout": "60s"}
    assert translated(document).spec.policy.time_limit is None
    child = trials.trial_job(parent(document), trial(), Settings())
    assert child.spec.policy.time_limit == 60


def test_a_trial_is_a_custom_job_with_its_values():
    child = trials.trial_job(parent(tuning(labels={"team": "a"})), trial(), Settings())
    (role,) = child.spec.roles
    assert role.program.args[-2:] == ("--lr=0.5", "--batch=16")
    assert role.env["AIP_MODEL_DIR"] == "gs://models/run/3/model/"
    assert (role.env["CLOUD_ML_TRIAL_ID"], role.env["CLOUD_ML_HP_METRIC_FILE"]) == (
        "3",
        "/var/hypertune/output.metrics",
    )
    assert "/var/hypertune" in child.spec.scratch
    assert (child.scope, child.handle) == ("trial:5:us-central1", "ae544170")
    assert child.labels == {"trial_of": "5"}
    kept = msgspec.json.decode(child.document)
    assert (kept["displayName"], kept["labels"]) == ("tune-trial-3", {"team": "a"})


def test_variables_may_refer_to_the_trial_or_replace_it():
    document = tuning()
    document["trialJobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = [
        {"name": "RUN", "value": "run-$(CLOUD_ML_TRIAL_ID) $$(CLOUD_ML_TRIAL_ID)"},
        {"name": "WHO", "value": "$(CLOUD_ML_TRIAL_ID)/$(RANK)"},
        {"name": "CLOUD_ML_TRIAL_ID", "value": "mine"},
    ]
    child = trials.trial_job(parent(document), trial(), Settings())
    (role,) = child.spec.roles
    assert role.env["RUN"] == "run-3 $(CLOUD_ML_TRIAL_ID)"
    assert (role.env["WHO"], "WHO" in role.late) == ("3/$(RANK)", True)
    assert role.env["CLOUD_ML_TRIAL_ID"] == "mine"
    assert child.spec.trial == "3"


def test_a_trial_as_it_is_shown():
    said = [Measurement(5, 2, step, (10 + step) * SECOND, {"accuracy": step / 4}) for step in (1, 2)]
    done = trial(
        state=TrialState.SUCCEEDED,
        value=0.5,
        metrics={"accuracy": 0.5},
        started=10 * SECOND,
        ended=13 * SECOND,
    )
    last = {
        "elapsedDuration": "2s",
        "stepCount": "2",
        "metrics": [{"metricId": "accuracy", "value": 0.5}],
    }
    assert trials.resource(parent(tuning()), done, said) == {
        "id": "3",
        "state": "SUCCEEDED",
        "parameters": [{"parameterId": "lr", "value": 0.5}, {"parameterId": "batch", "value": 16}],
        "finalMeasurement": last,
        "measurements": [
            {
                "elapsedDuration": "1s",
                "stepCount": "1",
                "metrics": [{"metricId": "accuracy", "value": 0.25}],
            },
            last,
        ],
        "startTime": "1970-01-01T00:00:10Z",
        "endTime": "1970-01-01T00:00:13Z",
        "customJob": "projects/p1/locations/us-central1/customJobs/77",
    }
    lost = trial(
        state=TrialState.INFEASIBLE,
        metrics={"accuracy": float("nan")},
        message="it said nothing",
        ended=SECOND,
    )
    shown = trials.resource(parent(tuning()), lost, [])
    assert shown["infeasibleReason"] == "it said nothing"
    assert shown["finalMeasurement"]["metrics"][0]["value"] == "NaN"


def test_enums_as_numbers_reach_into_trials():
    view = parent(tuning())
    shown = render.tuning_job(view) | {"trials": [trials.resource(view, trial(), [])]}
    assert shown["name"] == "projects/p1/locations/us-central1/hyperparameterTuningJobs/5"
    spelt = enum_numbers.apply(shown, HyperparameterTuningJob)
    assert (spelt["state"], spelt["trials"][0]["state"]) == (3, 1)
    assert spelt["studySpec"]["parameters"][0]["scaleType"] == 2


KINDS = {1: "double", 3: "int64", 5: "int32", 8: "bool", 9: "string", 14: "enum"}
WELL_KNOWN = {
    "Duration": "duration",
    "Timestamp": "timestamp",
    "Any": "any",
    "Value": "any",
    "BoolValue": "bool",
    "Int32Value": "int32",
}


def described(message: Any, found: dict[str, set[tuple[str, str, bool, str]]]) -> None:
    """Google's own messages: (name, kind, whether repeated, oneof) of each field."""
    name = message.full_name.partition(".v1.")[2] or message.full_name
    if name in found:
        return
    fields = found[name] = set[tuple[str, str, bool, str]]()
    for field in message.fields:
        inner: Any = field.message_type
        is_map = bool(inner and inner.GetOptions().map_entry)
        value: Any = inner.fields_by_name["value"] if is_map else field
        kind = KINDS.get(value.type, "message")
        if value.message_type:
            kind = WELL_KNOWN.get(value.message_type.name, kind)
        if kind == "message":
            described(value.message_type, found)
        oneof = field.containing_oneof.name if field.containing_oneof else ""
        fields.add((field.name, kind, field.is_repeated and not is_map, "" if oneof[:1] == "_" else oneof))


def ours(message: type[Message], found: dict[str, set[tuple[str, str, bool, str]]]) -> None:
    name = "google.rpc.Status" if message.__qualname__ == "Status" else message.__qualname__
    if name in found:
        return
    table = schema.of(message).fields
    found[name] = {(one.name, one.kind, one.repeated, one.oneof) for one in table}
    for one in table:
        if one.message:
            ours(one.message, found)


def test_the_messages_are_googles():
    google: dict[str, set[tuple[str, str, bool, str]]] = {}
    described(aiplatform_v1.HyperparameterTuningJob.pb().DESCRIPTOR, google)
    here: dict[str, set[tuple[str, str, bool, str]]] = {}
    ours(HyperparameterTuningJob, here)
    assert here == google
