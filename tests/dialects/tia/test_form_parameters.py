"""Parameters of query strings and forms."""

import contextlib
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.dialects.tia import form_parameters, wire
from turnout.dialects.tia.decode import from_pairs
from turnout.errors import Invalid

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(query: str | bytes) -> dict[str, object]:
    return form_parameters.document(
        form_parameters.pairs(query.encode() if isinstance(query, str) else query)
    )


@given(st.lists(text, min_size=1, max_size=30), st.randoms())
def test_arrays_come_back_in_the_order_of_their_numbers(items: list[str], chance):
    """Whatever order they are sent in: `.10` is after `.9`, and blanks are kept."""
    sent = [(f"Args.{index}", item) for index, item in enumerate(items)]
    chance.shuffle(sent)
    assert read(urlencode(sent)) == {"Args": items}


@pytest.mark.parametrize("query", ["Args.0=a+b%2Bc", "Args.0=a%20b%2bc"])
def test_both_spellings_of_a_space(query: str):
    assert read(query) == {"Args": ["a b+c"]}


def test_a_number_that_is_left_out_is_a_blank():
    assert read("Args.0=a&Args.2=c") == {"Args": ["a", "", "c"]}


def test_common_parameters_are_not_the_actions():
    assert read("Action=X&Version=1&Region=r&Nonce=1&Signature=s&Token=&Name=a") == {"Name": "a"}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("Args.0=a&Args.0=b", "Args.0"),
        ("Args.1=a&Args.01=b", "Args.01"),
        ("Name=a&Name=b", "Name"),
        ("Args=a&Args.0=b", "Args"),
        ("Args.16384=a", "Args.16384"),
        ("Args.999999999=a", "Args.999999999"),
        ("Name=%ff", "Name"),
        ("Args.3=%c3%28", "Args.3"),
    ],
)
def test_what_is_refused(query: str, field: str):
    with pytest.raises(Invalid) as raised:
        read(query)
    assert raised.value.field == field


def test_too_many_parameters():
    with pytest.raises(Invalid, match="20000"):
        form_parameters.pairs(b"a&" * 20_001)


def test_a_few_names_do_not_make_very_large_arrays():
    asked = [(f"Name{number}.16383", "x") for number in range(10)]
    with pytest.raises(Invalid, match="at most 20000 items"):
        form_parameters.document(asked)
    assert len(form_parameters.document(asked[:1])["Name0"]) == 16_384


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(query: bytes):
    """They are read or refused, never an accident."""
    with contextlib.suppress(Invalid):
        from_pairs(form_parameters.pairs(query), wire.CreateJob)


SAMPLE = [("Name", "n"), ("Cluster", "c"), ("RuntimeVersion", "r")]


@pytest.mark.parametrize("spelt", ["True", "true", "TRUE", "1"])
def test_truth_in_any_case(spelt: str):
    assert from_pairs([*SAMPLE, ("Debug", spelt)], wire.CreateJob).debug is True


@given(st.integers(0, 2**63 - 1))
def test_numbers_are_text(count: int):
    assert from_pairs([*SAMPLE, ("WorkerCount", str(count))], wire.CreateJob).worker_count == count


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("WorkerCount", "two", ""),
        ("WorkerCount", "-1", ""),
        ("WorkerCount", "", ""),
        ("Debug", "perhaps", ""),
        ("Args", "a", ""),
        ("Colour", "red", "UnknownParameter"),
        ("Args.0.1", "a", "UnknownParameter"),
    ],
)
def test_the_wrong_field_is_named(name: str, value: str, code: str):
    with pytest.raises(Invalid) as raised:
        from_pairs([*SAMPLE, (name, value)], wire.CreateJob)
    assert (raised.value.field, raised.value.code) == (name, code)
    assert name in raised.value.message


@pytest.mark.parametrize("index", range(3))
def test_the_missing_field_is_named(index: int):
    with pytest.raises(Invalid) as raised:
        from_pairs(SAMPLE[:index] + SAMPLE[index + 1 :], wire.CreateJob)
    assert (raised.value.field, raised.value.code) == (SAMPLE[index][0], "MissingParameter")
