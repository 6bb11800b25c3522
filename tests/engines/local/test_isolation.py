"""What a job can do to another one. `test_ordinary_user` tries the same as an ordinary user."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.escapes import harness_with_buckets, send_descriptors, try_attacks
from tests.engines.local.harness import IN_IMAGE, EngineHarness
from turnout.vault import KeyRing

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each project a user")


@pytest.fixture(params=["none", "bubblewrap", pytest.param(IN_IMAGE, marks=pytest.mark.slow)])
async def harness(
    base_dir: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[EngineHarness]:
    file = tmp_path / "key"
    file.write_bytes(b"k" * 32)
    async with harness_with_buckets(base_dir, request.param, KeyRing({"my-key": str(file)})) as one:
        yield one


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a shared bucket"])
@pytest.mark.parametrize("key", ["", "my-key"], ids=["plain", "encrypted"])
async def test_descriptors_of_an_ended_job_give_no_access_to_the_next_job(
    harness: EngineHarness, key: str, shared: bool
):
    # More jobs than the supervisor has spares.
    sent = await send_descriptors(harness, shared, key=key)
    assert sent.victims == {"0 ['secret'] [] 7\n"}
    assert "secret" not in sent.found
    # In the sandbox they need a bucket to meet. Even then they cannot reach the next job.
    assert sent.arrived == (shared or harness.sandbox == "none")


@as_root
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a shared bucket"])
async def test_a_job_cannot_reach_a_job_of_another_project(harness: EngineHarness, shared: bool):
    """Even without the sandbox, because they are different users."""
    assert await try_attacks(harness, shared) == []
