"""A request's body: whole, or refused as soon as it is too large or too late."""

import asyncio
from typing import Any

import pytest

from turnout.dialects import body
from turnout.dialects.body import read_body
from turnout.errors import Invalid, TooLarge


def read(*messages: dict[str, Any], declared: bytes | None = None, **options: Any) -> bytes | None:
    """With messages that come one after the other; then none comes any more."""
    coming = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in coming:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    headers = {} if declared is None else {b"content-length": declared}
    return asyncio.run(read_body(headers, receive, 10, **options))


def part(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_it_comes_in_one_piece_or_in_many() -> None:
    assert read(part(b"0123456789")) == b"0123456789"
    assert read(part(b"01", more=True), part(b"", more=True), part(b"23")) == b"0123"


def test_whoever_hangs_up_is_not_answered() -> None:
    assert read(part(b"01", more=True), {"type": "http.disconnect"}) is None


@pytest.mark.parametrize("declared", [b"11", b"9" * 5000])
def test_too_large_a_one_is_refused_before_it_comes(declared: bytes) -> None:
    with pytest.raises(TooLarge, match="may have 10 bytes"):
        read(declared=declared)


def test_too_large_a_one_is_refused_as_soon_as_it_is() -> None:
    with pytest.raises(TooLarge, match="no more than 10"):
        read(part(b"01234567890", more=True), too_large="no more than {limit}")


@pytest.mark.parametrize("messages", [[], [part(b"01", more=True)]])
def test_one_that_does_not_come_is_refused(
    messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "BODY_SECONDS", 0.05)
    with pytest.raises(Invalid, match="did not arrive") as caught:
        read(*messages, late="Late")
    assert caught.value.code == "Late"
