"""Whatever is sent to whatever address: a clean answer, and nothing of it is left."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.modelarts.driving import job
from tests.running import Service, running
from turnout.dialects.modelarts.calls import ROUTES

ADDRESSES = sorted(
    {(method, path) for method, path, _ in ROUTES if not path.startswith("/v3")}, key=lambda one: one[1]
)
FIELDS = [
    "action_type", "algorithm", "annotations", "auth_type", "description", "engine", "filters", "grants", "id",
    "job_config", "jobs", "key", "kind", "limit", "matches", "metadata", "name", "offset", "quota", "quotas",
    "resource", "spec", "tags", "training_experiment_reference", "type", "user_id", "value", "values",
    "without_any_tag", "workspace_id",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "0", "default", "\0", "\ud800", "x" * 300, "-1", "job-num", "../..", "%00", "{id}", "💥"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)
PARAMETERS = [
    "limit",
    "offset",
    "sort_by",
    "order",
    "searches",
    "workspace_id",
    "name",
    "flavor_type",
    "resource",
]
QUIET = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def open_service() -> Iterator[Service]:
    with running() as one:
        yield one.start("--no-auth")


@pytest.fixture(scope="module")
def client(open_service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=open_service.endpoint, trust_env=False, timeout=30) as one:
        yield one


def spelt(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="") or "-"


def is_clean(answer: httpx.Response) -> bool:
    if answer.status_code < 400:
        return True
    assert answer.status_code < 500, answer.text
    assert answer.headers["x-request-id"]
    return set(answer.json()) == {"error_code", "error_msg", "error_solution"}


@QUIET
@given(
    st.sampled_from(ADDRESSES), TEXTS, st.dictionaries(st.sampled_from(PARAMETERS), TEXTS, max_size=3), VALUES
)
def test_any_document_to_any_address(
    client: httpx.Client, address: tuple[str, str], word: str, query: dict[str, str], document: Any
):
    method, path = address
    path = path if path.startswith("/v1") else "/v2/{project_id}" + path
    whole = "/".join(
        "hostile" if part == "{project_id}" else spelt(word) if part.startswith("{") else part
        for part in path.split("/")
    )
    asked = "&".join(f"{name}={spelt(value)}" for name, value in query.items())
    body = json.dumps(document).encode()
    assert is_clean(client.request(method, f"{whole}?{asked}", content=body))


@QUIET
@given(st.binary(max_size=40))
def test_any_bytes_as_a_job(client: httpx.Client, body: bytes):
    assert client.post("/v2/hostile/training-jobs", content=body).status_code == 400


def paths(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    parts = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in parts:
        yield from paths(value, (*above, key))


WHOLE = job(
    "mutant",
    metadata={"description": "d", "annotations": {"fault-tolerance/job-retry-num": "1"}},
    algorithm={
        "parameters": [{"name": "a", "value": "1"}],
        "environments": {"A": "b"},
        "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "obs://hostile/in/"}}}],
        "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "/hostile/out/"}}}],
    },
    spec={
        "resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1},
        "auto_stop": {"time_unit": "HOURS", "duration": 1},
        "log_export_path": {"obs_url": "/hostile/log/"},
        "schedule_policy": {"priority": 1, "preemptible": False},
    },
)


@QUIET
@given(st.sampled_from(list(paths(WHOLE))), VALUES)
def test_a_good_job_with_one_thing_changed(client: httpx.Client, place: tuple[Any, ...], value: Any):
    document = json.loads(json.dumps(WHOLE))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    answer = client.post("/v2/mutants/training-jobs", content=json.dumps(document).encode())
    assert is_clean(answer)
    total = client.post("/v2/mutants/training-job-searches", json={}).json()["total"]
    assert total == (1 if answer.status_code == 201 else 0)
    if answer.status_code == 201:
        client.delete(f"/v2/mutants/training-jobs/{answer.json()['metadata']['id']}")
