"""Random requests to every address: always a clean answer, and no leftovers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.modelarts import examples
from tests.dialects.modelarts.driving import job, put
from tests.running import Service, running
from turnout.dialects.modelarts.routes import ROUTES

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


CONFIG = f"""
[engines.local]
gpus = 1

[pools.{examples.POOL}]

[images]
"{examples.IMAGE}" = "fastseq"

[datasets.set-1]
url = "obs://data/all/"
versions = {{ v1 = "obs://data/one/" }}
"""
CODE = ("train/demo-code/boot.py", "learner/learn.py", "worker/work.py")


@contextmanager
def opened() -> Iterator[Service]:
    with running(CONFIG) as one:
        one.start("--no-auth")
        for path in CODE:
            put(one, f"obs://code/{path}", "")
        yield one


@pytest.fixture(scope="module")
def open_service() -> Iterator[Service]:
    with opened() as one:
        yield one


@pytest.fixture(scope="module")
def client(open_service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=open_service.endpoint, trust_env=False, timeout=30) as one:
        yield one


def percent_encoded(text: str) -> str:
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
        "hostile" if part == "{project_id}" else percent_encoded(word) if part.startswith("{") else part
        for part in path.split("/")
    )
    asked = "&".join(f"{name}={percent_encoded(value)}" for name, value in query.items())
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


GOOD = job(
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
BY_NAME = examples.changed(examples.WHOLE, "metadata.training_experiment_reference", {"name": "made"})
DOCUMENTS = [GOOD, BY_NAME, examples.POOLED, examples.TASKS]


MUTANTS = st.tuples(
    st.sampled_from([(document, path) for document in DOCUMENTS for path in paths(document)]),
    st.one_of(VALUES, st.just(...)),
)


def mutated(mutant: tuple[tuple[dict[str, Any], tuple[Any, ...]], Any]) -> bytes:
    """A good document with one thing changed, or taken out."""
    (good, place), value = mutant
    document = json.loads(json.dumps(good))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return json.dumps(document).encode()


@QUIET
@given(MUTANTS)
def test_a_good_job_with_one_thing_changed(client: httpx.Client, mutant: Any):
    answer = client.post("/v2/mutants/training-jobs", content=mutated(mutant))
    assert is_clean(answer)
    total = client.post("/v2/mutants/training-job-searches", json={}).json()["total"]
    assert total == (1 if answer.status_code == 201 else 0)
    if answer.status_code == 201:
        client.delete(f"/v2/mutants/training-jobs/{answer.json()['metadata']['id']}")


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[Service, httpx.Client]]:
    """A service in which not even a good job can be made any more, so that nothing ever happens in it."""
    with opened() as service, httpx.Client(base_url=service.endpoint, trust_env=False, timeout=30) as client:
        quota = {"quotas": [{"resource": "job-num", "quota": 1}]}
        assert client.put("/v2/mutants/training-quotas", json=quota).status_code == 200
        made = client.post("/v2/mutants/training-jobs", json=job("only")).json()["metadata"]["id"]
        while client.get(f"/v2/mutants/training-jobs/{made}").json()["status"]["phase"] != "Completed":
            pass
        yield service, client


def traces(service: Service, client: httpx.Client) -> tuple[Any, ...]:
    """All that a document could leave: jobs, experiments, and files where data is or is brought to."""
    jobs = client.post("/v2/mutants/training-job-searches", json={}).json()["total"]
    experiments = client.get("/v2/mutants/training-experiments").json()["total"]
    places = [service.data / name for name in ("buckets", "copies", "exported", "staging")]
    files = [path for place in places for path in place.rglob("*")]
    # What begins with a dot is prepared for jobs to come.
    return jobs, experiments, sorted([*files, *(service.data / "attempts").glob("[!.]*")])


@pytest.mark.slow
@QUIET
@given(MUTANTS)
def test_what_is_refused_leaves_nothing(full: tuple[Service, httpx.Client], mutant: Any):
    before = traces(*full)
    answer = full[1].post("/v2/mutants/training-jobs", content=mutated(mutant))
    assert is_clean(answer)
    assert answer.status_code >= 400
    assert traces(*full) == before
    assert before[:2] == (1, 0)
