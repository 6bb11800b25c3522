"""Every field of the reference's tables: accepted, stored, and in the answer if its tables have it."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dialects.modelarts.examples import (
    ALGORITHM,
    BY_FILE,
    ONE,
    POOLED,
    SEARCH,
    TASKS,
    TWO,
    WHOLE,
    algorithm,
    changed,
    new_job,
    row,
    shown,
)
from turnout import config
from turnout.dialects.modelarts import decode
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.jobs import render
from turnout.job import PastAttempt, Reason, Replica, ReplicaState, State
from turnout.service import JobView

TABLES = tomllib.loads((Path(__file__).parent / "fields.toml").read_text())
DOCUMENTS = (ONE, TWO, WHOLE, BY_FILE, POOLED, TASKS)

SERVERS_OWN = {"metadata.id", "metadata.create_time", "metadata.user_name"}
"""Said by the server, whatever a request has."""
SEARCHING = "algorithm.policies.auto_search"
SUBSCRIPTION = {"algorithm.subscription_id", "algorithm.item_version_id"}
SINGLE = ("tasks[].algorithm.inputs", "tasks[].algorithm.outputs")
"""Lists in a request, objects in an answer."""


def places(tables: list[dict[str, Any]]) -> list[Any]:
    found = [
        (table["table"], f"{at}.{field}".lstrip("."))
        for table in tables
        for at in table["at"]
        for field in table["fields"]
    ]
    return [pytest.param(path, id=f"{number}-{path}") for number, path in found]


def values(document: Any, path: str) -> Iterator[Any]:
    """All that is at `tasks[].role`."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    if not isinstance(document, dict) or name not in document:
        return
    found = document[name]
    for one in found if head.endswith("[]") else [found]:
        if rest:
            yield from values(one, rest)
        else:
            yield one


@pytest.mark.parametrize("path", places(TABLES["request"]))
def test_a_field_of_a_request_is_taken_and_kept(path: str, subscribed: dict[str, Any]):
    if path.startswith(SEARCHING + "."):
        assert list(values(shown(changed(WHOLE, SEARCHING, SEARCH)), path)) == list(
            values(SEARCH, path.removeprefix(SEARCHING + "."))
        )
        return
    if path in SUBSCRIPTION:
        assert list(values(subscribed, path))
        return
    sent = [document for document in DOCUMENTS if list(values(document, path))]
    assert sent, f"no example has {path}"
    for document in sent:
        said = shown(document, algorithm() if document is ONE else None)
        stored = list(values(said, _as_answered(path)))
        assert stored or _is_empty(values(document, path)), f"{path} is lost"
        if path not in SERVERS_OWN:
            _check_same(list(values(document, path)), stored, path)


@pytest.mark.parametrize("path", places(TABLES["response"]))
def test_a_field_of_the_answer_is_there(path: str, subscribed: dict[str, Any]):
    searching = shown(changed(WHOLE, SEARCHING, SEARCH))
    ascend = tables.flavors()["modelarts.kat1.xlarge"].listed()
    npu = {"tasks": [{"task_resource": ascend}], "spec": {"resource": {"flavor_detail": ascend}}}
    answers = [shown(document, algorithm() if document is ONE else None) for document in DOCUMENTS]
    answers += [ended(), searching, npu, subscribed]
    assert any(list(values(said, path)) for said in answers)


def test_what_an_algorithm_can_search_is_kept():
    declared = [{"name": "epochs", "value": "3", "constraint": {"type": "Integer"}}]
    document = changed(ALGORITHM, "job_config.parameters", declared)
    document["advanced_config"] = {"auto_search": SEARCH}
    decoded = decode.decode_algorithm(json.dumps(document).encode())
    assert stored_algorithm(decoded)["advanced_config"]["auto_search"] == SEARCH


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["metadata"]["name"])
def test_an_answer_posted_back_makes_an_equal_job(document: dict[str, Any]):
    asset = algorithm() if document is ONE else None
    new = new_job(document, asset)
    details = render.job(JobView(row(new), (), new.document), [], 10**18)
    again = new_job(details, asset)
    assert json.loads(again.document) == json.loads(new.document)
    assert msgspec.structs.replace(again, document=new.document) == new


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["metadata"]["name"])
def test_null_is_as_good_as_absent(document: dict[str, Any]):
    asset = algorithm() if document is ONE else None
    nulls = {name: None for name in ("tasks", "algorithm", "endpoints", "train_type") if name not in document}
    assert new_job(document | nulls, asset) == new_job(document, asset)


def test_the_documentation_names_every_field():
    text = (Path(__file__).parents[3] / "docs" / "modelarts-fields.md").read_text()
    fields = {field for tables in TABLES.values() for table in tables for field in table["fields"]}
    named = {word for quoted in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", quoted)}
    assert fields <= named


def test_what_is_not_known_is_passed_over():
    assert new_job(changed(WHOLE, "spec.newer", {"a": [1]})) == new_job(WHOLE)


@pytest.fixture
def subscribed(tmp_path: Path) -> dict[str, Any]:
    """The answer for a job of a subscribed algorithm."""
    file = tmp_path / "algorithm.json"
    file.write_text(json.dumps(ALGORITHM))
    settings = config.Settings(subscriptions={"sub": config.Subscription(versions={"1.0": str(file)})})
    document = changed(ONE, "algorithm.id", None)
    document["algorithm"] |= {"subscription_id": "sub", "item_version_id": "1.0"}
    new = new_job(document, None, settings)
    return render.created(row(new), msgspec.json.decode(new.document))


def ended() -> dict[str, Any]:
    """A job that was started over once and then failed."""
    new = new_job(WHOLE)
    job = row(new, state=State.FAILED, reason=Reason.PROGRAM_FAILED, attempt=2, ended=10**18 + 9)
    replica = Replica(
        job.id, 2, "worker", 0, ReplicaState.FAILED, started=10**18, ended=10**18 + 9, exit_code=3
    )
    past = PastAttempt(job.id, 1, 10**18, 10**18 + 1, Reason.NODE_LOST, "worker-1 was lost", "worker-1")
    return render.job(JobView(job, (replica,), new.document), [past], 10**18 + 20)


def _as_answered(path: str) -> str:
    for single in SINGLE:
        path = path.replace(f"{single}[]", single)
    return path


def _is_empty(found: Iterator[Any]) -> bool:
    return all(value in (None, "", [], {}) for value in found)


def _check_same(sent: list[Any], stored: list[Any], path: str) -> None:
    """Plain values come back as they were sent; objects are walked field by field."""
    for value in sent:
        if value not in (None, "", [], {}) and not isinstance(value, dict | list) and "dataset" not in path:
            assert value in stored, f"{path}: {value!r} became {stored!r}"


def test_the_settings_of_the_documentation_can_be_pasted(tmp_path: Path):
    text = (Path(__file__).parents[3] / "docs" / "modelarts-fields.md").read_text()
    (sample,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "turnout.toml"
    file.write_text(sample)
    settings = config.load(str(file))
    assert settings.pools["poolfaf38d76"].cluster == "ap-beijing"
    assert settings.limits == config.Limits()
