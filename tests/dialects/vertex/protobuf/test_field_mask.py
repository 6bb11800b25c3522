"""Field masks."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.dialects.vertex.protobuf import field_mask
from turnout.dialects.vertex.wire import CustomJob
from turnout.errors import Invalid, TurnoutError

SCHEDULING = {"timeout": "1s", "strategy": "SPOT"}
DOCUMENT = {
    "name": "n",
    "displayName": "d",
    "jobSpec": {
        "scheduling": SCHEDULING,
        "workerPoolSpecs": [{"replicaCount": "1"}],
    },
    "labels": {"a": "b"},
}


def masked(text: str) -> dict[str, Any]:
    return field_mask.apply(field_mask.parse(text, CustomJob), DOCUMENT)


@pytest.mark.parametrize("text", ["", "*", " , ", "name,*"])
def test_everything(text: str):
    assert masked(text) == DOCUMENT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("name,displayName", {"name": "n", "displayName": "d"}),
        ("display_name", {"displayName": "d"}),
        ("labels", {"labels": {"a": "b"}}),
        ("jobSpec.scheduling.timeout", {"jobSpec": {"scheduling": {"timeout": "1s"}}}),
        ("job_spec.workerPoolSpecs", {"jobSpec": {"workerPoolSpecs": [{"replicaCount": "1"}]}}),
        ("jobSpec.scheduling,jobSpec.scheduling.timeout", {"jobSpec": {"scheduling": SCHEDULING}}),
        ("jobSpec.scheduling.timeout,jobSpec", {"jobSpec": DOCUMENT["jobSpec"]}),
        ("error.code,endTime", {}),
    ],
)  # fmt: skip
def test_what_is_asked_for(text: str, shown: dict[str, Any]):
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nam", "CustomJob has name, displayName, jobSpec"),
        ("jobSpec.x", "CustomJobSpec has persistentResourceId"),
        ("jobSpec.", "is not a field"),
        ("name.x", "selects a part of name, which"),
        ("jobSpec.workerPoolSpecs.replicaCount", "selects a part of workerPoolSpecs"),
        ("labels.a", "selects a part of labels"),
        ("x" * 10_001, "longer than"),
    ],
    ids=lambda text: text[:20],
)
def test_a_wrong_mask(text: str, told: str):
    with pytest.raises(Invalid) as raised:
        masked(text)
    assert raised.value.field == "readMask"
    assert told in raised.value.message


@given(
    st.lists(
        st.sampled_from(["name", "jobSpec", "job_spec", ".", ",", "labels", "scheduling", "timeout", "*"])
    ).map("".join)
)
def test_no_mask_breaks_it(text: str):
    with contextlib.suppress(TurnoutError):
        assert masked(text).items() <= DOCUMENT.items() or "jobSpec" in masked(text)
