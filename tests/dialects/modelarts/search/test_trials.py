"""The jobs of trials, and the tables that show them."""

import json
from typing import Any

import pytest

from tests.dialects.modelarts.examples import (
    ALGORITHM,
    BY_FILE,
    ONE,
    SEARCH,
    SETTINGS,
    WHOLE,
    algorithm,
    arguments,
    changed,
    new_job,
    options,
    row,
)
from turnout.dialects.modelarts.jobs import render
from turnout.dialects.modelarts.search import trial_jobs, trial_tables
from turnout.job import Asset, Measurement, NewJob, Search, Trial, TrialState
from turnout.service import JobView

SECOND = 1_000_000_000
SEARCHING = "algorithm.policies.auto_search"
LOGS = {"obs_url": "obs://logs/all/"}
YAML = b"""
search_space:
  - params:
    - {type: discrete_param, name: layers, values: [2, 3]}
search_algorithm: {type: tpe_search, reward_attr: acc, num_samples: 4}
"""


def parent_of(document: dict[str, Any], asset: Asset | None = None, config: bytes | None = None) -> JobView:
    new = new_job(document, asset, config=config)
    return JobView(row(new), (), new.document)


def trial(parent: JobView, number: int = 0, **fields: Any) -> Trial:
    default: dict[str, Any] = {"parameters": {"epochs": 5}, "child": 7, "created": 0}
    return Trial(parent.job.id, number, f"ae54417{number}", 0, **(default | fields))


def search_of(asked: dict[str, Any]) -> Search:
    search = new_job(changed(WHOLE, SEARCHING, asked)).spec.search
    assert search is not None
    return search


def child_of(parent: JobView, one: Trial) -> tuple[NewJob, dict[str, Any]]:
    new = trial_jobs.trial_job(parent, one, SETTINGS)
    return new, json.loads(new.document)


def test_a_trial_is_the_job_with_its_values_and_places_of_its_own():
    document = changed(changed(WHOLE, SEARCHING, SEARCH), "spec.log_export_path", LOGS)
    parent = parent_of(document)
    child, stored = child_of(parent, trial(parent))
    default = new_job(changed(WHOLE, "spec.log_export_path", LOGS))
    assert "--epochs=5" in options(child)
    assert child.spec.search is None
    assert child.spec.roles[0].resources == default.spec.roles[0].resources
    sources = [mount.source for mount in child.spec.mounts]
    assert "obs://models/mnist/ae544170" in sources
    assert [one for one in sources if "models" not in one] == [
        mount.source for mount in default.spec.mounts if "models" not in mount.source
    ]
    assert child.spec.logs is not None
    assert child.spec.logs.to == "obs://logs/all/ae544170"
    assert (child.scope, child.handle) == (f"trial:{parent.job.id}", "ae544170")
    assert child.labels == {"trial_of": str(parent.job.id)}
    assert stored["metadata"]["name"] == "whole-ae544170"
    assert stored["algorithm"]["policies"] == {}
    assert render.tasks(stored, None) == ["worker-0", "worker-1"][: stored["spec"]["resource"]["node_count"]]


def test_a_trial_of_an_algorithm_keeps_its_name():
    declared = [{"name": "epochs", "value": "3", "constraint": {"type": "Integer"}}]
    asset = algorithm(changed(ALGORITHM, "job_config.parameters", declared))
    document = changed(ONE, SEARCHING, SEARCH)
    document["algorithm"].pop("parameters", None)
    parent = parent_of(document, asset)
    child, stored = child_of(parent, trial(parent))
    assert stored["algorithm"]["id"] == asset.id
    assert "--epochs=5" in options(child)


def test_a_search_by_file_gives_its_programs_a_module_and_the_framework():
    parent = parent_of(BY_FILE, config=YAML)
    child, stored = child_of(parent, trial(parent, 1, parameters={"layers": 3}))
    assert "def reporter" in arguments(child)[8]
    framework = next(mount for mount in child.spec.mounts if mount.source == "obs://code/framework")
    assert (framework.target, framework.read_only) == (arguments(child)[9], True)
    assert json.loads(child.spec.roles[0].env["TURNOUT_TRIAL"]) == {"layers": 3, "trial_index": 1}
    assert "autosearch_config_path" not in stored["algorithm"]


def test_a_parameter_that_is_a_whole_number_stays_one():
    (epochs,) = search_of(SEARCH).parameters
    assert (epochs.kind, epochs.values) == ("discrete", (1, 5, 9))
    free = changed(SEARCH, "search_params.0.discrete_points_num", None)
    (epochs,) = search_of(free).parameters
    assert (epochs.kind, epochs.low, epochs.high) == ("integer", 1, 9)


def test_what_is_tried_is_what_the_parameter_may_be():
    far = changed(SEARCH, "search_params.0.upper_bound", "1000")
    with pytest.raises(Exception, match="must be from 1 to 100") as caught:
        new_job(changed(WHOLE, SEARCHING, far))
    assert getattr(caught.value, "code", "") == "ModelArts.2826"


def test_points_to_leave_out():
    search = search_of(SEARCH | {"skip_search_params": "epochs=5"})
    assert search.skip == ({"epochs": "5"},)


@pytest.mark.parametrize("text", ["rate", " rate ;", "rate;epochs=5", "epochs=5;rate"])
def test_a_parameter_to_leave_out_of_the_search(text: str):
    rate = {"name": "rate", "param_type": "continuous", "lower_bound": "0", "upper_bound": "1"}
    both = SEARCH | {"search_params": [*SEARCH["search_params"], rate], "skip_search_params": text}
    document = changed(WHOLE, "algorithm.parameters", WHOLE["algorithm"]["parameters"] + [{"name": "rate"}])
    search = new_job(changed(document, SEARCHING, both)).spec.search
    assert search is not None
    assert [parameter.name for parameter in search.parameters] == ["epochs"]
    assert search.skip == (({"epochs": "5"},) if "=" in text else ())


def test_the_nodes_of_a_search_are_those_of_its_running_trials():
    parent = parent_of(changed(WHOLE, SEARCHING, SEARCH))
    trials = [
        trial(parent, 0, started=1 * SECOND, ended=3 * SECOND),
        trial(parent, 1, started=2 * SECOND, ended=4 * SECOND),
        trial(parent, 2, started=4 * SECOND),
        trial(parent, 3),
    ]
    said = render.job(parent, [], 9 * SECOND, trials)["status"]
    created = parent.job.created // 10**6
    assert said["node_count_metrics"] == [[created, 0], [1000, 2], [2000, 4], [3000, 2]]
    assert len(said["tasks"]) == 8


def told(parent: JobView) -> list[trial_tables.TrialReport]:
    def said(number: int, step: int, acc: float) -> Measurement:
        return Measurement(parent.job.id, number, step, (10 + step) * SECOND, {"acc": acc})

    times = {"started": 10 * SECOND, "ended": 13 * SECOND}
    done = trial(parent, 0, state=TrialState.SUCCEEDED, value=0.5, metrics={"acc": 0.5}, **times)
    runs = trial(parent, 1, state=TrialState.ACTIVE, started=10 * SECOND, parameters={"epochs": "9"})
    return [
        trial_tables.TrialReport(done, [said(0, 1, 0.75), said(0, 2, 0.5)], 314),
        trial_tables.TrialReport(runs, [said(1, 1, 0.25)]),
        trial_tables.TrialReport(trial(parent, 2, state=TrialState.INFEASIBLE, **times), []),
    ]


def test_the_table_of_trials():
    parent = parent_of(changed(WHOLE, SEARCHING, SEARCH))
    search = search_of(SEARCH)
    table = trial_tables.render_trials(told(parent), search, 14 * SECOND)
    assert table["header"] == [
        "", "done", "pid", "config", "trial_id", "training_iteration", "time_total_s", "worker_index", "reward_attr",
        "status", "acc", "best_reward",
    ]  # fmt: skip
    config = {"epochs": 5, "trial_index": 0, "param/epochs": 5}
    assert table["data"][0] == [
        "0", "True", "314", config, "ae544170", "2", "3.0", "", "0.5", "TERMINATED", "0.5", "0.75",
    ]  # fmt: skip
    config = {"epochs": 9, "trial_index": 1, "param/epochs": 9}
    assert table["data"][1] == [
        "1", "False", "", config, "ae544171", "1", "4.0", "", "0.25", "RUNNING", "0.25", "0.25",
    ]  # fmt: skip
    assert table["data"][2][-4:] == ["", "ERROR", "", ""]


def test_the_reports_of_a_trial():
    parent = parent_of(changed(WHOLE, SEARCHING, SEARCH))
    search = search_of(SEARCH)
    table = trial_tables.render_trial(told(parent)[0], search, 14 * SECOND)
    assert table["header"] == [
        "done", "pid", "best_reward", "time_total_s", "config", "acc", "trial_id", "training_iteration", "reward_attr",
    ]  # fmt: skip
    config = {"epochs": 5, "trial_index": 0, "param/epochs": 5}
    assert table["data"] == [
        ["False", "314", "0.75", "1.0", config, "0.75", "ae544170", "1", "0.75"],
        ["True", "314", "0.75", "3.0", config, "0.5", "ae544170", "2", "0.5"],
    ]
    silent = trial_tables.render_trial(told(parent)[2], search, 14 * SECOND)
    assert [row[0] for row in silent["data"]] == ["True"]


def test_a_search_has_the_tasks_of_its_trials():
    parent = parent_of(changed(changed(WHOLE, SEARCHING, SEARCH), "spec.resource.node_count", 1))
    assert render.job(parent, [], 0)["status"]["tasks"] == []
    shown = render.job(parent, [], 0, [trial(parent, 0), trial(parent, 1)])
    assert shown["status"]["tasks"] == ["ae544170-worker-0", "ae544171-worker-0"]


def test_pictures_go_with_the_logs_or_the_results():
    stored = json.loads(parent_of(changed(WHOLE, SEARCHING, SEARCH)).document)
    stored["spec"]["log_export_path"] = LOGS
    assert trial_tables.picture_path(stored, "lr") == "obs://logs/all/hyperparameter-analysis/fanova/lr.png"
    stored["spec"]["log_export_path"] = {}
    assert (
        trial_tables.picture_path(stored, "lr") == "obs://models/mnist/hyperparameter-analysis/fanova/lr.png"
    )
    del stored["algorithm"]["outputs"]
    assert trial_tables.picture_path(stored, "lr") == ""


def test_what_mattered():
    assert trial_tables.render_importance([("lr", 0.24431, 0.3867)])["data"] == [["lr", "0.2443/0.3867"]]
