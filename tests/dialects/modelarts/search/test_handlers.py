"""Hyper-parameter search through Huawei's own client: jobs, trials, parameter importance."""

import json
import time
from typing import Any

import httpx
import pytest

from tests.dialects.modelarts.driving import Cloud, get, put, refused, send
from tests.running import KEY, Service
from turnout.access import make_token
from turnout.dialects.modelarts.search import config_file

PYTORCH = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
PARABOLA = 'python3 -c \'import os; x = float(os.environ["x"]); print("acc=%r" % (1 - (x - 0.3) ** 2))\''
NUMBERS = {"value": "0.5", "constraint": {"type": "Float", "valid_type": "Range", "valid_range": ["0", "1"]}}


def search(samples: int = 4, algorithm: str = "tpe_search", **parts: Any) -> dict[str, Any]:
    return {
        "reward_attrs": [{"name": "acc", "mode": "max", "regex": "acc=([-+.e0-9]+)"}],
        "search_params": [
            {"name": "x", "param_type": "continuous", "lower_bound": "0", "upper_bound": "1"},
            {"name": "y", "param_type": "discrete", "discrete_values": ["1", "2"]},
        ],
        "algo_configs": [{"name": algorithm, "params": [told("num_samples", samples)]}],
    } | parts


def told(key: str, value: int) -> dict[str, str]:
    return {"key": key, "value": str(value), "type": "Integer"}


def searching(name: str, command: str = PARABOLA, asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """The parts of a job, for `Cloud.create`."""
    return {
        "algorithm": {
            "parameters": [{"name": "x"} | NUMBERS, {"name": "y", "value": "1"}],
            "policies": {"auto_search": asked or search()},
            "outputs": [
                {"name": "train_url", "remote": {"obs": {"obs_url": f"obs://search-results/{name}/"}}}
            ],
        },
        "spec": {
            "resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1},
            "log_export_path": {"obs_url": f"obs://search-logs/{name}/"},
        },
    }


def finished(cloud: Cloud, job_id: str, seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while (job := cloud.details(job_id)).status.phase in ("Pending", "Running", "Creating", "Terminating"):
        assert time.monotonic() < deadline, job.status
        time.sleep(0.2)
    return job


def rows(table: Any) -> list[dict[str, str]]:
    return [dict(zip(table.header, row, strict=True)) for row in table.data]


def trials(cloud: Cloud, job_id: str, **page: int) -> list[dict[str, str]]:
    return rows(cloud("show_auto_search_trials", training_job_id=job_id, **page).items)


def test_what_there_is_to_search_with(cloud: Cloud):
    found = cloud("show_search_algorithms")
    assert found.search_algo_count == 3
    bayes = found.search_algo_list[0]
    assert [(one.key, one.value, one.type) for one in bayes.params] == [
        ("kind", "ucb", "String"),
        ("kappa", "2.5", "Float"),
        ("xi", "0.0", "Float"),
        ("num_samples", "20", "Integer"),
        ("seed", "1", "Integer"),
    ]
    assert [one.name for one in found.search_algo_list[1:]] == ["tpe_search", "anneal_search"]


def test_templates(cloud: Cloud):
    (kind,) = cloud("show_auto_search_yaml_templates_info").yaml_templates
    assert (kind.algorithm_type_en, kind.algorithm_names) == ("hpo", ["Anneal", "Bayes", "GridSearch", "TPE"])
    for name in kind.algorithm_names:
        asked = {"algorithm_type": "hpo", "algorithm_name": name}
        content = cloud("show_auto_search_yaml_template_content", **asked)
        assert content.file_name == f"{name}.yaml"
        config_file.to_search(content.content.encode(), "a template", [])
    with refused("ModelArts.2858", match="Anneal, Bayes"):
        cloud("show_auto_search_yaml_template_content", algorithm_type="nas", algorithm_name="AutoEvo")


def test_a_search_from_its_start_to_what_mattered(cloud: Cloud, service: Service):
    command = f"{PARABOLA}; echo done > $train_url/mark; echo y is $y"
    job_id = cloud.create("search-whole", command, **searching("whole", command, search(8))).metadata.id
    done = finished(cloud, job_id)
    assert done.status.phase == "Completed"
    assert done.algorithm.policies.auto_search.reward_attrs[0].name == "acc"
    tried = trials(cloud, job_id)
    assert [row[""] for row in tried] == [str(number) for number in range(8)]
    # Between JSON and here the SDK makes text of every cell, also of the one that is an object.
    raw = send(service, "GET", f"/v2/default/training-jobs/{job_id}/autosearch-trials").json()["items"][
        "data"
    ]
    for row, config in zip(tried, [cells[3] for cells in raw], strict=True):
        assert (row["done"], row["status"]) == ("True", "TERMINATED")
        assert float(row["acc"]) == pytest.approx(1 - (config["x"] - 0.3) ** 2)
        assert row["best_reward"] == row["reward_attr"] == row["acc"]
        assert config["y"] == config["param/y"] in (1, 2)
        assert get(service, f"obs://search-results/whole/{row['trial_id']}/mark") == "done\n"
    assert done.status.tasks == [f"{row['trial_id']}-worker-0" for row in tried]
    assert "acc=" in cloud.log(job_id, done.status.tasks[0])
    assert "y is" in cloud.log(job_id, tried[1]["trial_id"])
    assert trials(cloud, job_id, limit=3, offset=2) == tried[6:]
    one = rows(cloud("show_auto_search_per_trial", training_job_id=job_id, trial_id=tried[0]["trial_id"]))
    assert (one[-1]["done"], one[-1]["acc"]) == ("True", tried[0]["acc"])
    best = max(tried, key=lambda row: float(row["acc"]))
    assert best["trial_id"] in done.status.running_records[-1].end_reason
    analysis = rows(cloud("show_auto_search_params_analysis", training_job_id=job_id))
    assert {row["parameters"] for row in analysis} == {"x", "y"}
    drawn = cloud("show_auto_search_param_analysis_result_path", training_job_id=job_id, parameter_name="x")
    assert drawn.file_path == "obs://search-logs/whole/hyperparameter-analysis/fanova/x.png"
    assert picture(service, drawn.file_path).startswith(b"\x89PNG")
    assert cloud.events(job_id)
    assert cloud("list_training_job_stages", training_job_id=job_id).total_count
    jobs = cloud("list_training_jobs", body={"filters": []}).items
    assert not [job for job in jobs if job.metadata.name.startswith("search-whole-")]


def picture(service: Service, url: str) -> bytes:
    headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    where = f"{service.endpoint}/turnout/v1/object"
    return httpx.get(where, params={"url": url}, headers=headers, trust_env=False).content


def test_a_trial_that_is_stopped_early_keeps_its_measurements(cloud: Cloud):
    command = "echo acc=0.5; exec sleep 600"
    job_id = cloud.create("search-early", command, **searching("early", command, search(1))).metadata.id
    deadline = time.monotonic() + 60
    while not (tried := trials(cloud, job_id)) or not tried[0]["acc"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    trial_id = tried[0]["trial_id"]
    assert (tried[0]["done"], tried[0]["status"]) == ("False", "RUNNING")
    where = {"training_job_id": job_id, "trial_id": trial_id}
    assert cloud("show_auto_search_trial_early_stop", **where).earlystop_trial == trial_id
    assert finished(cloud, job_id).status.phase == "Completed"
    (row,) = trials(cloud, job_id)
    assert (row["status"], row["acc"]) == ("TERMINATED", "0.5")
    with refused("ModelArts.2796", 409):
        cloud("show_auto_search_trial_early_stop", **where)
    with refused("ModelArts.2788", match="is not a trial"):
        cloud("show_auto_search_trial_early_stop", training_job_id=job_id, trial_id="ffffffff")


def test_a_search_is_stopped_with_its_trials(cloud: Cloud):
    command = "echo acc=1; exec sleep 600"
    job_id = cloud.create("search-stop", command, **searching("stop", command)).metadata.id
    cloud("stop_training_job", training_job_id=job_id, body={"action_type": "terminate"})
    assert finished(cloud, job_id).status.phase == "Terminated"
    cloud("delete_training_job", training_job_id=job_id)
    with refused("ModelArts.2775"):
        cloud("show_auto_search_trials", training_job_id=job_id)


def test_details_posted_back_make_the_same_search(cloud: Cloud, service: Service):
    first = cloud.create("search-copied", "echo acc=1", **searching("copied", asked=search(1)))
    finished(cloud, first.metadata.id)
    address = "/v2/default/training-jobs"
    details = send(service, "GET", f"{address}/{first.metadata.id}").json()
    details["metadata"]["name"] = "search-copy"
    copied = send(service, "POST", address, json.dumps(details)).json()
    assert copied["algorithm"] == details["algorithm"]
    assert finished(cloud, copied["metadata"]["id"]).status.phase == "Completed"
    assert len(trials(cloud, copied["metadata"]["id"])) == 1


BOOT = """
import autosearch, framework
def train():
    for epoch in range(3):
        autosearch.reporter(accuracy=framework.score(autosearch.config) + epoch)
"""
CONFIG = """
search_space: [{params: [{type: discrete_param, name: batch_size, values: [16, 32]}]}]
search_algorithm: {type: grid_search, reward_attr: accuracy}
"""


def test_a_search_that_a_file_describes(cloud: Cloud, service: Service):
    put(service, "obs://by-file/code/boot.py", BOOT)
    put(service, "obs://by-file/framework/framework.py", "def score(config): return config['batch_size']")
    put(service, "obs://by-file/search.yaml", CONFIG)
    body = {
        "kind": "job",
        "metadata": {"name": "search-by-file"},
        "algorithm": {
            "code_dir": "obs://by-file/code/",
            "boot_file": "obs://by-file/code/boot.py",
            "engine": {"engine_id": PYTORCH},
            "autosearch_config_path": "obs://by-file/search.yaml",
            "autosearch_framework_path": "obs://by-file/framework/",
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
    }
    job_id = cloud("create_training_job", body=body).metadata.id
    assert finished(cloud, job_id).status.phase == "Completed"
    tried = trials(cloud, job_id)
    assert sorted(float(row["accuracy"]) for row in tried) == [18, 34]
    reports = rows(cloud("show_auto_search_per_trial", training_job_id=job_id, trial_id=tried[0]["trial_id"]))
    assert [row["done"] for row in reports] == ["False", "False", "True"]
    assert [row["training_iteration"] for row in reports] == ["1", "2", "3"]
    body["metadata"]["name"] = "search-by-no-file"
    body["algorithm"]["autosearch_config_path"] = "obs://by-file/none.yaml"
    job_id = cloud("create_training_job", body=body).metadata.id
    assert finished(cloud, job_id).status.phase == "Failed"
    assert "there was nothing at 'obs://by-file/none.yaml'" in cloud.log(job_id)


def test_a_job_that_searches_nothing_has_no_trials(cloud: Cloud):
    job_id = cloud.create("no-search").metadata.id
    for method, fields in (
        ("show_auto_search_trials", {}),
        ("show_auto_search_per_trial", {"trial_id": "1"}),
        ("show_auto_search_trial_early_stop", {"trial_id": "1"}),
        ("show_auto_search_params_analysis", {}),
        ("show_auto_search_param_analysis_result_path", {"parameter_name": "x"}),
    ):
        with refused("ModelArts.2858", match="is not a hyper-parameter search"):
            cloud(method, training_job_id=job_id, **fields)
        with refused("ModelArts.2775"):
            cloud(method, training_job_id="none", **fields)
