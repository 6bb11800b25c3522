"""Keys and tokens."""

import base64
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import Key, Keys, check_token, make_token, open_root_key
from turnout.errors import Misconfigured, Unauthenticated

KEY = Key("AKIDone", "a secret", "default", root=True)
NOW = 1_800_000_000.0


def test_the_first_start_makes_a_root_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "root-key"
    key = open_root_key(path)
    assert key.root
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert open_root_key(path) == key


def test_the_settings_win(tmp_path: Path) -> None:
    key = open_root_key(tmp_path / "root-key", "mine:a-long-secret")
    assert (key.id, key.secret) == ("mine", "a-long-secret")
    assert not (tmp_path / "root-key").exists()


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "root-key").write_text("nonsense")
    with pytest.raises(Misconfigured, match="<id>:<secret>"):
        open_root_key(tmp_path / "root-key")


def test_a_secret_is_not_shown_by_accident() -> None:
    assert "a secret" not in repr(KEY)


def test_a_token_is_good_for_its_time() -> None:
    token = make_token(KEY, NOW)
    assert check_token(Keys(KEY), token, NOW + 3599) == KEY
    with pytest.raises(Unauthenticated, match="expired"):
        check_token(Keys(KEY), token, NOW + 3601)


@given(position=st.integers(0, 200), letter=st.characters(codec="ascii"))
def test_a_token_with_any_letter_changed_is_refused(position: int, letter: str) -> None:
    token = make_token(KEY, NOW)
    position %= len(token)
    changed = token[:position] + letter + token[position + 1 :]
    if changed != token and not _same_key(changed):
        with pytest.raises(Unauthenticated):
            check_token(Keys(KEY), changed, NOW)


@given(st.text())
def test_any_text_is_refused_without_an_accident(text: str) -> None:
    with pytest.raises(Unauthenticated):
        check_token(Keys(KEY), text, NOW)


def _same_key(token: str) -> bool:
    """The last letter of a base64 text has bits that mean nothing."""
    spelt = token.split(".")[1] if token.count(".") == 3 else ""
    good = make_token(KEY, NOW)
    try:
        key_id = base64.urlsafe_b64decode(spelt + "=" * (-len(spelt) % 4)).decode()
    except ValueError:
        return False
    return key_id == KEY.id and token.split(".")[2:] == good.split(".")[2:] and token.startswith("tk1.")
