"""Keys and tokens."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import Key, Keys, check_token, make_token, open_root_key
from turnout.errors import Misconfigured, Unauthenticated

KEY = Key("AKIDone", "a secret", "default", root=True)
NOW = 1_800_000_000.0


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_a_root_key_that_others_can_read_is_put_right(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "root-key"
    key = open_root_key(path)
    assert not caplog.text
    path.chmod(mode)
    assert open_root_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"had the mode {mode:04o}" in caplog.text
    assert key.secret not in caplog.text
    caplog.clear()
    open_root_key(path)
    assert not caplog.text


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


def test_an_invalid_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "root-key").write_text("nonsense")
    with pytest.raises(Misconfigured, match="<id>:<secret>"):
        open_root_key(tmp_path / "root-key")


def test_a_secret_is_not_shown_by_accident() -> None:
    assert "a secret" not in repr(KEY)


def test_a_token_is_valid_until_it_expires() -> None:
    token = make_token(KEY, NOW)
    assert check_token(Keys(KEY), token, NOW + 3599) == KEY
    with pytest.raises(Unauthenticated, match="expired"):
        check_token(Keys(KEY), token, NOW + 3601)


@given(position=st.integers(0, 200), letter=st.characters(codec="ascii"))
def test_a_token_with_any_letter_changed_is_refused(position: int, letter: str) -> None:
    token = make_token(KEY, NOW)
    position %= len(token)
    changed = token[:position] + letter + token[position + 1 :]
    if changed != token:
        with pytest.raises(Unauthenticated):
            check_token(Keys(KEY), changed, NOW)


@given(st.text())
def test_any_text_is_refused_without_an_exception(text: str) -> None:
    with pytest.raises(Unauthenticated):
        check_token(Keys(KEY), text, NOW)
