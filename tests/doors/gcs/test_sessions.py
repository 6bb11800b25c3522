"""Uploads that can be taken up again: what a client is told to forget is on disk."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnout.doors.gcs.sessions import Sessions, Target

TARGET = Target("p", "b", "key", "", {}, {}, None, "http://here")


async def test_what_is_claimed_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sessions = Sessions(lambda: tmp_path)
    session = sessions.find(sessions.begin(TARGET))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1000

    await session.append(0, body(), None)
    assert session.safe_size() == 1000
    assert synced == [1000]
