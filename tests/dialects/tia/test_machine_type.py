"""Machine types: `aUbGcP`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.dialects.tia import machine_type
from turnout.errors import Invalid
from turnout.job import Resources
from turnout.job.resources import GIB

numbers = st.integers(0, 999_999)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1U2G1P", Resources.of(cores=1, memory=2 * GIB, gpus=1)),
        ("1U2G0P", Resources.of(cores=1, memory=2 * GIB)),
        ("0U0G1P", Resources(gpus=1)),
        ("16U48G1P", Resources.of(cores=16, memory=48 * GIB, gpus=1)),
        ("", Resources()),
    ],
)
def test_the_documented_types(text: str, expected: Resources):
    assert machine_type.parse(text, "MasterType") == expected


@given(numbers, numbers, numbers)
def test_every_type_of_that_form(cpu: int, memory: int, gpus: int):
    expected = Resources.of(cores=cpu, memory=memory * GIB, gpus=gpus)
    assert machine_type.parse(f"{cpu}U{memory}G{gpus}P", "WorkerType") == expected


@pytest.mark.parametrize(
    "text",
    [
        "1U2G",
        "1u2g1p",
        " 1U2G1P",
        "1U2G1P\n",
        "1.5U2G0P",
        "-1U2G0P",
        "1U2G1PX",
        "٣U2G0P",
        "1000000U1G0P",
        "2G1U0P",
    ],
)
def test_other_forms_are_refused(text: str):
    with pytest.raises(Invalid, match=r"WorkerType.*2U4G1P") as raised:
        machine_type.parse(text, "WorkerType")
    assert raised.value.field == "WorkerType"


@given(st.one_of(st.text(min_size=1), st.from_regex(r"[0-9UGPu .-]{1,12}")))
def test_any_other_text_is_refused(text: str):
    if re.fullmatch(r"[0-9]{1,6}U[0-9]{1,6}G[0-9]{1,6}P", text):
        return
    with pytest.raises(Invalid):
        machine_type.parse(text, "MasterType")
