"""`turnout sweep` against a real service."""

import json
import sqlite3
import time
from pathlib import Path

import pytest

from tests.running import KEY, Service, running

DAY = 86_400 * 10**9


@pytest.fixture
def aged():
    """A service with a job that was deleted weeks ago, one that ended weeks ago, and one of today."""
    with running() as service:
        service.start()
        for name in ("deleted", "old", "fresh"):
            service.create(name, "echo", name)
            service.wait(name)
        service.delete("deleted")
        service.terminate()
        weeks_ago = time.time_ns() - 40 * DAY
        with sqlite3.connect(service.data / "turnout.db") as connection:
            for column in ("ended", "deleted"):
                connection.execute(
                    f"UPDATE jobs SET {column} = ? WHERE {column} IS NOT NULL AND name != 'fresh'",
                    (weeks_ago,),
                )
        connection.close()
        yield service


def attempts(data: Path) -> int:
    return sum(name.name[0].isdigit() for name in (data / "attempts").iterdir())


def test_a_dry_run_shows_what_a_sweep_deletes(aged: Service, run_turnout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNOUT_ENDPOINT", aged.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    aged.start()
    # The service sweeps when it starts; a sweep of our own has to wait for that.
    deadline = time.monotonic() + 30
    while (run := run_turnout("sweep", "--output=json")).code:
        assert "another sweep is running" in run.err
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert {one["what"]: one["count"] for one in json.loads(run.out)}["deleted jobs"] == 0
    with sqlite3.connect(aged.data / "turnout.db") as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM jobs")}
        documents = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
    connection.close()
    assert names == {"old", "fresh"}
    assert documents == 2
    while attempts(aged.data) != 1:
        assert time.monotonic() < deadline, "the log of the old job stays on disk"
        time.sleep(0.05)
    assert [line.Log for line in aged.logs("fresh")] == ["fresh"]
    would = run_turnout("sweep", "--dry-run")
    assert would.code == 0
    assert would.out.startswith("WOULD DELETE")
    assert "deleted_days" in would.out


def test_only_root_may_sweep(aged: Service, run_turnout, monkeypatch: pytest.MonkeyPatch):
    aged.start()
    monkeypatch.setenv("TURNOUT_ENDPOINT", aged.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    made = json.loads(run_turnout("keys", "create", "--project=vision", "--output=json").out)
    monkeypatch.setenv("TURNOUT_KEY", f"{made['id']}:{made['secret']}")
    refused = run_turnout("sweep")
    assert refused.code == 1
    assert "only the root key may sweep" in refused.err
