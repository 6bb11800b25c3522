"""Whether the user that jobs run as can get to a directory of the host."""

from pathlib import Path

import pytest

from tests.running import reachable_directory
from turnout.engines.local.users.account import Account
from turnout.errors import Invalid
from turnout.storage import Storage

STRANGER = Account("stranger", 54321, 54321, other=True)


@pytest.fixture
def place():
    with reachable_directory() as directory:
        yield directory


def storage(place: Path) -> Storage:
    return Storage(
        place / "buckets",
        [(place, True)],
        place / "data",
        None,
        lambda _, path, mode: STRANGER.blocked(path, mode),
    )


def test_a_directory_that_it_may_not_enter_is_refused_with_what_to_do(place: Path):
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(Invalid, match=r"may not enter .*/closed; chmod o\+rx"):
        storage(place).check(f"file://{place}/closed")


def test_a_directory_that_it_may_not_write_to_is_a_note(place: Path):
    (place / "mine").mkdir(mode=0o755)
    assert "may not write" in storage(place).check(f"file://{place}/mine")
    assert storage(place).check(f"file://{place}/mine", read_only=True) == ""
    (place / "mine").chmod(0o777)
    assert storage(place).check(f"file://{place}/mine") == ""
