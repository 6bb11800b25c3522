"""Page sizes and tokens."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.dialects.vertex import paging
from turnout.dialects.vertex.paging import Listing
from turnout.errors import Invalid, TurnoutError

SECRET = b"secret"
ALL = Listing("p1", "us-central1")
ID = 1234567890123456789


@pytest.mark.parametrize(("text", "size"), [("", 100), ("0", 100), ("7", 7), ("1000", 1000), ("99999", 1000)])
def test_sizes(text: str, size: int):
    assert paging.page_size(text) == size


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "1" * 100, "²"])
def test_wrong_sizes(text: str):
    with pytest.raises(Invalid, match="pageSize"):
        paging.page_size(text)


def test_a_token_leads_on_where_the_last_page_ended():
    assert paging.read_token(SECRET, ALL, paging.make_token(SECRET, ALL, ID)) == ID
    assert paging.read_token(SECRET, ALL, "") is None


@pytest.mark.parametrize(
    "other",
    [
        Listing("p2", "us-central1"),
        Listing("p1", "us-east1"),
        Listing("p1", "us-central1", "state=3"),
        Listing("p1u", "s-central1"),
    ],
)
def test_a_token_is_good_for_its_own_list_only(other: Listing):
    with pytest.raises(Invalid, match="with the same parent and filter"):
        paging.read_token(SECRET, other, paging.make_token(SECRET, ALL, ID))


def test_a_token_cannot_be_made_up():
    with pytest.raises(Invalid):
        paging.read_token(SECRET, ALL, paging.make_token(b"other", ALL, ID))


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")))
def test_no_token_breaks_it(token: str):
    with contextlib.suppress(TurnoutError):
        assert paging.read_token(SECRET, ALL, token) is None
