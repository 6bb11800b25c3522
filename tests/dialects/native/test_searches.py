"""Searches of all APIs: the list, one with its space, trials in pages, importance; and what another key sees."""

import time
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud
from tests.dialects.modelarts.search.test_handlers import PARABOLA, searching
from tests.dialects.native.driving import Client
from tests.dialects.vertex import jobs as vertex_jobs
from tests.running import Service

HOSTILE = '<img src=x onerror="alert(1)">'
SCRIPT = """
import sys
told = dict(one[2:].split("=", 1) for one in sys.argv[1:])
print("TURNOUT_METRIC accuracy=%f" % (1 - (float(told["lr"]) - 0.3) ** 2))
"""


def search(name: str, trials: int = 5, **fields: Any) -> dict[str, Any]:
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {
                "parameterId": "lr",
                "doubleValueSpec": {"minValue": 0.01, "maxValue": 1},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "opt", "categoricalValueSpec": {"values": ["sgd", HOSTILE]}},
        ],
        "algorithm": "RANDOM_SEARCH",
    }
    pool = vertex_jobs.container(command=["python3", "-c", SCRIPT])
    return {
        "displayName": name,
        "studySpec": study,
        "maxTrialCount": trials,
        "parallelTrialCount": 2,
        "trialJobSpec": {"workerPoolSpecs": [pool]},
    } | fields


@pytest.fixture(scope="module")
def done(client: Client) -> dict[str, Any]:
    """A search that has ended."""
    made = client.post("/jobs", search("done"))
    ended = client.get(f"/jobs/{made['id']}/wait", timeout="60")
    assert ended["state"] == "succeeded", ended
    return ended


def test_the_list_has_searches_and_no_other_jobs(client: Client, done: dict[str, Any]) -> None:
    [found] = client.get("/searches", name="done")["searches"]
    assert (found["id"], found["metric"], found["goal"]) == (done["id"], "accuracy", "max")
    assert (found["algorithms"], found["parameters"], found["max_trials"]) == (["random"], 2, 5)
    assert found["trials"] == {"succeeded": 5}
    assert len(client.names(api="vertex")) > len(client.get("/searches", api="vertex")["searches"])


def test_lists_have_pages(client: Client, done: dict[str, Any]) -> None:
    client.post("/jobs", search("later", 1))
    first = client.get("/searches", limit="1", order="created")
    second = client.get("/searches", limit="1", order="created", cursor=first["next"])
    assert [first["searches"][0]["name"], second["searches"][0]["name"]] == ["done", "later"]


def test_one_search_has_its_space_and_algorithm(client: Client, done: dict[str, Any]) -> None:
    found = client.get(f"/searches/{done['id']}")
    rate, optimizer = found["space"]
    assert (rate["name"], rate["low"], rate["high"], rate["scale"]) == ("lr", 0.01, 1, "log")
    assert optimizer["values"] == ["sgd", HOSTILE]
    assert (found["suggesters"], found["parallel"]) == ([{"name": "random"}], 2)


def test_trials_come_in_pages(client: Client, done: dict[str, Any]) -> None:
    path = f"/searches/{done['id']}/trials"
    first = client.get(path, limit="3")
    second = client.get(path, limit="3", cursor=first["next"])
    trials = first["trials"] + second["trials"]
    assert ([one["number"] for one in trials], second["next"]) == ([1, 2, 3, 4, 5], "")
    for trial in trials:
        expected = 1 - (trial["parameters"]["lr"] - 0.3) ** 2
        assert trial["value"] == pytest.approx(expected, abs=1e-6)
        assert trial["metrics"] == {"accuracy": trial["value"]}
        assert trial["created"] <= trial["started"] <= trial["ended"]
        assert client.get(f"/jobs/{trial['job']}")["state"] == "succeeded"
    assert client.send("GET", path, cursor="x").status == 400


def test_importance_is_computed_once_for_each_number_of_results(client: Client, done: dict[str, Any]) -> None:
    path = f"/searches/{done['id']}/importance"
    found = client.get(path)["importance"]
    assert {one["name"] for one in found} == {"lr", "opt"}
    began = time.monotonic()
    assert client.get(path)["importance"] == found
    again = time.monotonic() - began
    assert again < 1, again


def test_other_projects_do_not_see_it(client: Client, done: dict[str, Any]) -> None:
    other = client.other("elsewhere")
    assert other.get("/searches")["searches"] == []
    for path in ("", "/trials", "/importance"):
        assert other.send("GET", f"/searches/{done['id']}{path}").status == 404


def test_a_job_that_is_no_search_is_refused(client: Client, done: dict[str, Any]) -> None:
    trial = client.get(f"/searches/{done['id']}/trials")["trials"][0]["job"]
    refused = client.send("GET", f"/searches/{trial}")
    assert (refused.status, "is not a search" in refused.error) == (404, True)


def test_a_modelarts_search_is_still_one_after_its_tags_are_changed(service: Service, client: Client) -> None:
    cloud = Cloud(service)
    job_id = cloud.create("tagged-search", PARABOLA, **searching("tagged-search")).metadata.id
    cloud("create_train_job_tags", training_job_id=job_id, body={"tags": [{"key": "team", "value": "red"}]})
    [found] = client.get("/searches", api="modelarts", label="team=red")["searches"]
    assert (found["uuid"], found["metric"], found["goal"], found["max_trials"]) == (job_id, "acc", "max", 4)
    cloud("delete_train_job_tags", training_job_id=job_id, body={"tags": [{"key": "team", "value": "red"}]})
    assert client.get(f"/searches/{job_id}")["space"][0]["name"] == "x"
    client.send("DELETE", f"/jobs/{job_id}")
