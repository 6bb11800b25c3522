"""The key ring: the sources of keys, and sealed data when a key is missing or changed."""

import sys
from pathlib import Path

import pytest

from turnout.errors import NotFound
from turnout.vault import Header, KeyGone, KeyRing, is_sealed, is_sealed_text

NAME = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
KEY = bytes(range(32))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    return file


@pytest.fixture
def ring(file: Path) -> KeyRing:
    return KeyRing({NAME: str(file)})


def test_sealed_data_names_its_key(ring: KeyRing):
    sealed = ring.new(NAME).seal(b"secret", "job 1 document")
    assert is_sealed(sealed)
    assert b"secret" not in sealed
    assert NAME.encode() in sealed
    assert ring.opened(sealed, "job 1 document") == b"secret"


def test_texts_stay_texts(ring: KeyRing):
    sealed = ring.new(NAME).seal_text("schön", "job 1 message")
    assert is_sealed_text(sealed)
    assert sealed.isascii()
    assert ring.opened_text(sealed, "job 1 message") == "schön"


def test_text_that_only_looks_sealed_is_unchanged(ring: KeyRing):
    assert ring.opened_text("\x1asealed:not at all", "job 1 message") == "\x1asealed:not at all"


def test_a_data_key_comes_back_by_its_header(ring: KeyRing):
    key = ring.new(NAME)
    again = ring.data_key(Header.of(NAME, key.header.text))
    assert again.open(key.seal(b"x", "a"), "a") == b"x"


def test_a_data_key_does_not_open_data_of_another(ring: KeyRing):
    one, other = ring.new(NAME), ring.new(NAME)
    assert one.secret != other.secret


def test_sealed_data_cannot_be_swapped(ring: KeyRing):
    sealed = ring.new(NAME).seal(b"x", "job 1 document")
    with pytest.raises(KeyGone, match="was changed"):
        ring.opened(sealed, "job 2 document")
    with pytest.raises(KeyGone, match="was changed"):
        ring.opened(sealed[:-1] + bytes([sealed[-1] ^ 1]), "job 1 document")
    with pytest.raises(KeyGone, match="damaged"):
        ring.opened(sealed[:20], "job 1 document")


def test_a_key_that_the_settings_do_not_name_is_refused(ring: KeyRing):
    with pytest.raises(NotFound, match="has no key 'projects/other'"):
        ring.new("projects/other")


@pytest.mark.parametrize("text", [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n"])
def test_a_file_has_bytes_or_hexadecimal_digits(tmp_path: Path, text: bytes):
    sealed = _ring(tmp_path, KEY).new(NAME).seal(b"x", "a")
    assert _ring(tmp_path, text).opened(sealed, "a") == b"x"


def test_a_key_is_gone_the_moment_its_file_is(ring: KeyRing, file: Path):
    sealed = ring.new(NAME).seal(b"x", "a")
    file.unlink()
    with pytest.raises(KeyGone, match="No such file"):
        ring.opened(sealed, "a")
    with pytest.raises(KeyGone):
        ring.new(NAME)
    assert list(ring.check()) == [NAME]
    file.write_bytes(KEY)
    assert ring.opened(sealed, "a") == b"x"
    assert ring.check() == {}


def test_another_key_under_the_same_name_opens_nothing(ring: KeyRing, file: Path):
    sealed = ring.new(NAME).seal(b"x", "a")
    file.write_bytes(b"\1" * 32)
    with pytest.raises(KeyGone, match="has changed"):
        ring.opened(sealed, "a")


def test_a_file_that_holds_no_key(tmp_path: Path):
    with pytest.raises(KeyGone, match="64 hexadecimal digits"):
        _ring(tmp_path, b"short").new(NAME)


def test_without_the_setting_the_error_names_the_key(ring: KeyRing):
    sealed = ring.new(NAME).seal(b"x", "a")
    with pytest.raises(KeyGone, match=f"{NAME}.* is not in the key ring"):
        KeyRing().opened(sealed, "a")


def test_a_command_prints_the_key():
    ring = KeyRing(commands={NAME: [sys.executable, "-c", f"print({KEY.hex()!r})"]})
    with pytest.raises(KeyGone, match="has not run yet"):
        ring.new(NAME)
    ring.open()
    try:
        assert ring.opened(ring.new(NAME).seal(b"x", "a"), "a") == b"x"
    finally:
        ring.close()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["/no/such/command"], "cannot be run"),
        (["false"], "ended with code 1"),
        (["true"], "did not print 32 bytes"),
    ],
)
def test_a_command_that_prints_none(argv: list[str], why: str):
    ring = KeyRing(commands={NAME: argv})
    ring.open()
    try:
        with pytest.raises(KeyGone, match=why):
            ring.new(NAME)
    finally:
        ring.close()


def _ring(directory: Path, content: bytes) -> KeyRing:
    file = directory / "another"
    file.write_bytes(content)
    return KeyRing({NAME: str(file)})
