"""Uploads that can be taken up again: what a client is told to forget is on disk."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnout.errors import NotFound
from turnout.gateways.gcs.sessions import COMPLETE_SECONDS, UploadSessions, UploadTarget, clear

TARGET = UploadTarget("p", "b", "key", "", {}, {}, None, "http://here")


async def test_what_is_claimed_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sessions = UploadSessions(lambda: tmp_path)
    session = sessions.find(sessions.begin(TARGET))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1000

    await session.append(0, body(), None)
    assert session.safe_size() == 1000
    assert synced == [1000]


async def test_complete_and_abandoned_ones_are_cleared_away_and_others_stay(tmp_path: Path):
    sessions = UploadSessions(lambda: tmp_path)
    now = time.time()
    names = [sessions.begin(TARGET) for _ in range(4)]
    complete, just_complete, abandoned, fresh = names
    for name in (complete, just_complete):
        sessions.find(name).complete({"name": "key"})
    os.utime(tmp_path / "gcs" / complete / "answer", (now, now - 2 * COMPLETE_SECONDS))
    os.utime(tmp_path / "gcs" / abandoned / "data", (now, now - 8 * 86_400))
    (tmp_path / "gcs" / ".gone-left-by-a-kill").mkdir()

    assert clear(lambda: tmp_path, now - 7 * 86_400, True)[0] == 3
    assert clear(lambda: tmp_path, now - 7 * 86_400, False)[0] == 3
    assert sorted(os.listdir(tmp_path / "gcs")) == sorted([just_complete, fresh])
    for name in (complete, abandoned):
        with pytest.raises(NotFound, match="begin the upload again"):
            sessions.find(name)
    assert sessions.find(just_complete).response() == {"name": "key"}
    assert clear(lambda: tmp_path, 0.0, False) == (0, 0)


async def test_what_the_sweep_has_cleared_is_not_held_in_memory(tmp_path: Path):
    sessions = UploadSessions(lambda: tmp_path)
    stays = sessions.find(sessions.begin(TARGET))
    for _ in range(20):
        for _ in range(50):
            sessions.find(sessions.begin(TARGET))
        now = time.time()
        os.utime(stays.data, (now, now + 3600))
        clear(lambda: tmp_path, now + 60, False)
    assert len(sessions._open) <= 128
    assert sessions.find(stays.directory.name) is stays
