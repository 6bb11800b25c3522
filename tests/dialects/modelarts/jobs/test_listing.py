"""List requests as queries of the store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.samples import SPEC
from turnout.dialects.modelarts.jobs.listing import WINDOW, ListQuery, ListRequest, parse
from turnout.dialects.modelarts.jobs.phases import PHASES, in_phase, phase
from turnout.errors import Invalid
from turnout.job import All, Job, NewJob, Page, Reason, State, to_uuid
from turnout.store import Batch, Store

DAY = 86_400_000_000_000
NOW = 1_700_000_000_000_000_000
LABELS: dict[str, dict[str, str]] = {
    "mnist-1": {
        "kind": "job",
        "algorithm_id": "a1",
        "algorithm_name": "mnist",
        "tag:team": "red",
        "user_id": "u1",
    },
    "mnist-2": {"kind": "job", "algorithm_id": "a2", "algorithm_name": "mnist-big", "tag:team": "blue"},
    "Resnet": {
        "kind": "job",
        "pool_id": "pool1",
        "runtime_type": "debug",
        "tag:team": "red",
        "tag:cost": "1",
    },
    "tuned": {"kind": "job", "training_experiment_id": "e1", "train_type": "SFT"},
    "elsewhere": {"kind": "job"},
}
STATES = {
    "mnist-1": (State.RUNNING, None),
    "mnist-2": (State.FAILED, Reason.PROGRAM_FAILED),
    "Resnet": (State.FAILED, Reason.NODE_LOST),
    "tuned": (State.FAILED, Reason.TIME_LIMIT),
    "elsewhere": (State.QUEUED, None),
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Five jobs, a day apart, the last in another workspace."""
    store = Store.open("", tmp_path / "turnout.db")
    batch = Batch()
    for number, name in enumerate(LABELS):
        batch.created.append(_job(number, name))
    await store.commit(batch)
    yield store
    await store.close()


def _job(number: int, name: str) -> tuple[Job, NewJob]:
    scope = "modelarts:w2" if name == "elsewhere" else "modelarts:0"
    state, reason = STATES[name]
    created = NOW - (len(LABELS) - number) * DAY
    job = Job(
        id=job_id(name),
        project="p1",
        dialect="modelarts",
        scope=scope,
        handle=name,
        name=name,
        cluster="c",
        state=state,
        priority=1 + number % 3,
        created=created,
        updated=created,
        started=None if name == "tuned" else created,
        reason=reason,
    )
    return job, NewJob("p1", "modelarts", scope, name, name, "c", SPEC, b"{}", labels=LABELS[name])


def job_id(name: str) -> int:
    return (NOW // 1_000_000 << 20) + list(LABELS).index(name)


def list_request(**body: Any) -> ListRequest:
    return msgspec.convert(body, ListRequest)


def filtered(key: str, operator: str, *value: str | None) -> dict[str, object]:
    return {"key": key, "operator": operator, "value": list(value)}


async def names(store: Store, *filters: dict[str, object], **body: Any) -> list[str]:
    found = parse(list_request(filters=list(filters), **body), NOW)
    jobs = await store.find(found.query, found.page)
    if len(jobs) < found.limit and not found.offset:
        assert await store.count(found.query) == len(jobs)
    return [job.name for job in jobs]


async def test_nothing_asked_for_is_the_default_workspace_newest_first(store: Store) -> None:
    assert await names(store) == ["tuned", "Resnet", "mnist-2", "mnist-1"]
    assert await names(store, workspace_id="0", order="asc") == ["mnist-1", "mnist-2", "Resnet", "tuned"]
    assert await names(store, workspace_id="w2", sort_by="create_time") == ["elsewhere"]


async def test_offset_is_a_page(store: Store) -> None:
    pages = [await names(store, limit=3, offset=page) for page in range(3)]
    assert pages == [["tuned", "Resnet", "mnist-2"], ["mnist-1"], []]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (filtered("name", "like", "mnist"), ["mnist-2", "mnist-1"]),
        (filtered("name", "like", "-1", "Res"), ["Resnet", "mnist-1"]),
        (filtered("name", "in", "mnist-1", "nobody"), ["mnist-1"]),
        (filtered("name", "not", "mnist-1", "tuned"), ["Resnet", "mnist-2"]),
        (filtered("algorithm_name", "like", "big"), ["mnist-2"]),
        (filtered("algorithm_id", "in", "a1", "a2"), ["mnist-2", "mnist-1"]),
        (filtered("algorithm_id", "not", "a1"), ["tuned", "Resnet", "mnist-2"]),
        (filtered("pool_id", "in", "pool1"), ["Resnet"]),
        (filtered("runtime_type", "in", "debug"), ["Resnet"]),
        (filtered("user_id", "in", "u1"), ["mnist-1"]),
        (filtered("training_experiment_id", "in", "e1"), ["tuned"]),
        (filtered("kind", "in", "job"), ["tuned", "Resnet", "mnist-2", "mnist-1"]),
        (filtered("kind", "in", "hetero_job"), []),
        (filtered("id", "in", to_uuid(job_id("Resnet")), "no such id"), ["Resnet"]),
        (filtered("id", "not", to_uuid(job_id("Resnet"))), ["tuned", "mnist-2", "mnist-1"]),
        (filtered("priority", "in", "2"), ["mnist-2"]),
        (filtered("priority", "between", "2", ""), ["Resnet", "mnist-2"]),
        (filtered("phase", "in", "Running"), ["mnist-1"]),
        (filtered("phase", "in", "Failed"), ["mnist-2"]),
        (filtered("phase", "in", "Abnormal", "Terminated"), ["tuned", "Resnet"]),
        (filtered("phase", "not", "Abnormal", "Failed"), ["tuned", "mnist-1"]),
        (
            filtered("create_time", "between", str((NOW - 4 * DAY) // 1_000_000), ""),
            ["tuned", "Resnet", "mnist-2"],
        ),
        (filtered("create_time", "between", "", "2023-11-10T22:13:20Z"), ["mnist-2", "mnist-1"]),
    ],
)
async def test_a_filter(store: Store, condition: dict[str, object], found: list[str]) -> None:
    """The last: four days before NOW, in RFC 3339."""
    assert await names(store, condition) == found


@pytest.mark.parametrize("value", [None, [], [""], ["", ""], ""])
@pytest.mark.parametrize(
    ("key", "operator"), [("phase", "in"), ("name", "like"), ("create_time", "between"), ("user_id", "not")]
)
async def test_empty_values_restrict_nothing(store: Store, key: str, operator: str, value: object) -> None:
    assert len(await names(store, {"key": key, "operator": operator, "value": value})) == 4


async def test_filters_hold_together(store: Store) -> None:
    both = (filtered("name", "like", "mnist"), filtered("phase", "in", "Failed", "Running"))
    assert await names(store, *both) == ["mnist-2", "mnist-1"]
    assert await names(store, *both, filtered("algorithm_id", "not", "a1")) == ["mnist-2"]


async def test_tags(store: Store) -> None:
    team = {"key": "team", "values": ["red", "green"]}
    assert await names(store, tags=[team]) == ["Resnet", "mnist-1"]
    assert await names(store, tags=[team, {"key": "cost"}]) == ["Resnet"]
    assert await names(store, tags=[{"key": "team", "values": [""]}]) == ["Resnet", "mnist-2", "mnist-1"]


async def test_with_tags_only_the_last_31_days_are_looked_at(store: Store) -> None:
    found = parse(list_request(tags=[{"key": "team"}]), NOW + WINDOW - 3 * DAY)
    assert [job.name for job in await store.find(found.query, found.page)] == ["Resnet"]


async def test_hosts(store: Store) -> None:
    assert await names(store, host_ips=["127.0.0.1", "::1"]) == ["Resnet", "mnist-2", "mnist-1"]
    assert await names(store, host_ips=["192.168.0.1"]) == []


async def test_train_type(store: Store) -> None:
    assert await names(store, train_type="ftjob") == ["tuned"]
    assert await names(store, train_type="job") == ["Resnet", "mnist-2", "mnist-1"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"filters": [filtered("colour", "in", "red")]}, "2807", "filters[0].key"),
        ({"filters": [filtered("name", "between", "a", "b")]}, "2808", "filters[0].operator"),
        ({"filters": [filtered("phase", "like", "Run")]}, "2808", "filters[0].operator"),
        ({"filters": [filtered("name", "like", "a"), {"key": "name"}]}, "2808", "filters[1].operator"),
        ({"filters": [filtered("phase", "in", "Sleeping")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("priority", "in", "high")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("create_time", "between", "yesterday", "")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("create_time", "between", "1")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("create_time", "between", "2", "1")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("name", "in", *"abcdefghijk")]}, "2809", "filters[0].value"),
        ({"filters": [filtered("name", "in", "a")] * 21}, "2789", "filters"),
        ({"sort_by": "colour"}, "2790", "sort_by"),
        ({"order": "up"}, "2788", "order"),
        ({"limit": 0}, "2788", "limit"),
        ({"limit": 51}, "2788", "limit"),
        ({"offset": -1}, "2788", "offset"),
        ({"offset": 10**30}, "2788", "offset"),
        ({"train_type": "fun"}, "2788", "train_type"),
        ({"tags": [{"key": "a"}, {"key": "a"}]}, "2788", "tags[1].key"),
        ({"tags": [{"values": ["a"]}]}, "2788", "tags[0].key"),
        ({"tags": [{"key": "a", "values": ["b", "b"]}]}, "2788", "tags[0].values"),
        ({"tags": [{"key": str(n)} for n in range(11)]}, "2788", "tags"),
        ({"host_ips": ["here"]}, "2788", "host_ips[0]"),
        ({"host_ips": ["127.0.0.1"] * 11}, "2788", "host_ips"),
        (
            {"host_ips": ["127.0.0.1"], "filters": [filtered("create_time", "between", "1", "")]},
            "2809",
            "filters[0].value",
        ),
    ],
)
def test_what_cannot_be_asked_for(body: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(list_request(**body), NOW)
    assert (caught.value.code, caught.value.field) == (f"ModelArts.{code}", field)


TEXTS = st.sampled_from(["", "0", "name", "\0", "训练", "%", "Running", "2023-11-10T22:13:20Z"]) | st.text(
    max_size=9
)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": TEXTS | st.sampled_from(["id", "phase", "create_time", "priority", "kind", "user_id"]),
        "operator": TEXTS | st.sampled_from(["in", "not", "like", "between"]),
        "value": st.none() | TEXTS | st.lists(TEXTS | st.none() | st.integers(), max_size=12),
    },
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "offset": st.integers(),
        "limit": st.integers(-1, 60),
        "order": TEXTS,
        "workspace_id": TEXTS,
        "filters": st.lists(CONDITIONS, max_size=5),
        "tags": st.lists(st.fixed_dictionaries({"key": TEXTS, "values": st.lists(TEXTS)}), max_size=3),
        "host_ips": st.lists(TEXTS, max_size=3),
    },
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES)
async def test_whatever_is_asked_is_answered_or_refused(store: Store, body: dict[str, Any]) -> None:
    answer = understood(body)
    if isinstance(answer, Invalid):
        assert answer.code.startswith("ModelArts.")
        assert answer.message.startswith(answer.field)
    else:
        assert len(await store.find(answer.query, answer.page)) <= await store.count(answer.query)


def understood(body: dict[str, Any]) -> ListQuery | Invalid:
    try:
        return parse(list_request(**body), NOW)
    except Invalid as error:
        return error


async def test_phases_are_the_same_in_both_directions(tmp_path: Path) -> None:
    """Every state with every reason is found by the phase that it is shown in, and by no other."""
    store = Store.open("", tmp_path / "turnout.db")
    every = [(state, reason) for state in State for reason in (None, *Reason)]
    jobs: list[Job] = []
    batch = Batch()
    for number, (state, reason) in enumerate(every):
        job, new = _job(0, "mnist-1")
        job = msgspec.structs.replace(job, id=job.id + number, handle="", state=state, reason=reason)
        jobs.append(job)
        batch.created.append((job, msgspec.structs.replace(new, handle="")))
    await store.commit(batch)
    for name in PHASES:
        found = {job.id for job in await store.find(All(in_phase(name)), Page(1000))}
        assert found == {job.id for job in jobs if phase(job).phase == name}
    await store.close()
