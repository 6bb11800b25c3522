"""References between variables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.job.expand import expand, expand_partly, refers


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)/x", "1/x"),
        ("$(A)$(B)", "12"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$($(A))", "$(1)"),
    ],
)
def test_references(text: str, expanded: str):
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_what_a_reference_brings_is_not_looked_at_again():
    assert expand("$(A)", {"A": "$(B)", "B": "2"}) == "$(B)"


LATER = {"RANK": "$(A)", "HOST": "h$$"}


@given(
    st.lists(st.sampled_from(["$", "$$", "(", ")", "A", "$(A)", "$(RANK)", "$(HOST)", "$(NONE)", "x"])).map(
        "".join
    )
)
def test_in_two_steps_it_is_the_same(text: str):
    known = {"A": "$(RANK)$$"}
    assert expand(expand_partly(text, known, frozenset(LATER)), LATER) == expand(text, known | LATER)


def test_whether_something_is_referred_to():
    assert refers("a$(RANK)", frozenset({"RANK"}))
    assert not refers("a$$(RANK)", frozenset({"RANK"}))
    assert not refers("$(A)", frozenset({"RANK"}))
