"""Bodies that are not JSON, and mutated documents: always a clean error."""

import contextlib
import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.modelarts.examples import (
    ALGORITHM,
    ONE,
    POOLED,
    SEARCH,
    SETTINGS,
    TASKS,
    TWO,
    WHOLE,
    algorithm,
    changed,
    new_job,
    row,
)
from turnout.dialects.modelarts import decode, translate
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.dialects.modelarts.jobs import render
from turnout.errors import Invalid, TurnoutError
from turnout.service import JobView

SEARCHING = changed(WHOLE, "algorithm.policies.auto_search", SEARCH)
DOCUMENTS = (ONE, TWO, WHOLE, POOLED, TASKS, SEARCHING)
ASSET = algorithm()


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b"", "2787", ""),
        (b"{", "2787", ""),
        (b"\xff", "2787", ""),
        (b"[]", "2788", ""),
        (b"null", "2788", ""),
        (b"{}", "2788", "kind"),
        (b'{"kind": "job"}', "2788", "metadata"),
        (b'{"kind": "job", "metadata": {}}', "2788", "metadata.name"),
        (b'{"kind": 1, "metadata": {"name": "a"}}', "2788", "kind"),
        (
            b'{"kind": "job", "metadata": {"name": "a"}, "spec": {"resource": {"node_count": "1"}}}',
            "2788",
            "spec.resource.node_count",
        ),
        (
            b'{"kind": "job", "metadata": {"name": "a"}, "algorithm": {"inputs": [{"name": []}]}}',
            "2788",
            "algorithm.inputs[0].name",
        ),
    ],
)
def test_what_cannot_be_read(body: bytes, code: str, field: str):
    with pytest.raises(Invalid) as caught:
        decode.decode_job(body)
    assert (caught.value.code, caught.value.field) == (f"ModelArts.{code}", field)
    assert field in caught.value.message


def test_what_is_nested_too_deeply():
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    with pytest.raises(Invalid, match="ftjob_config is nested"):
        decode.decode_job(json.dumps(WHOLE | {"ftjob_config": deep}).encode())


def test_what_is_too_large():
    with pytest.raises(Invalid, match="the limit is 1048576") as caught:
        decode.decode_job(json.dumps(WHOLE | {"ftjob_config": {"a": "x" * (1 << 20)}}).encode())
    assert caught.value.code == "ModelArts.2788"


def test_numbers_of_any_size_are_kept():
    new = new_job(WHOLE | {"ftjob_config": {"many": 10**40, "negative": -(2**64), "small": 1e-300}})
    assert render.created(row(new), msgspec.json.decode(new.document))["ftjob_config"]["small"] == 1e-300


def paths(document: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inside = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [path for key, value in inside for path in [(*above, key), *paths(value, (*above, key))]]


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=80),
    st.sampled_from(
        ["", "/", "..", "/../x", "obs://", "obs:///", "file://x", "a\0b", "x" * 70_000, "-1", "1e999"]
    ),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn, documents: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        everywhere = paths(document)
        if not everywhere:
            break
        *above, last = draw(st.sampled_from(everywhere))
        place: Any = document
        for key in above:
            place = place[key]
        if draw(st.booleans()):
            del place[last]
        else:
            place[last] = draw(ODD)
    return document


@settings(max_examples=400, deadline=None)
@given(mutated(DOCUMENTS))
def test_a_mutated_job_is_a_job_or_a_clean_refusal(document: dict[str, Any]):
    body = json.dumps(document).encode()
    with contextlib.suppress(TurnoutError):
        new = translate.new_job(decode.decode_job(body), translate.TranslationContext("p1", SETTINGS), ASSET)
        said = render.job(JobView(row(new), (), new.document), [], 10**18)
        assert (
            render.created(row(new), msgspec.json.decode(new.document))["status"]["tasks"]
            == said["status"]["tasks"]
        )


@settings(max_examples=150, deadline=None)
@given(mutated((ALGORITHM | {"advanced_config": {"auto_search": SEARCH}},)))
def test_a_mutated_algorithm_is_one_or_a_clean_refusal(document: dict[str, Any]):
    with contextlib.suppress(TurnoutError):
        stored = stored_algorithm(decode.decode_algorithm(json.dumps(document).encode()))
        decode.decode_algorithm(json.dumps(stored).encode())
