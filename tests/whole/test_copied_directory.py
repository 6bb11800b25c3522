"""A copy of a data directory beside the original, on the same machine: each service keeps to its own processes."""

import subprocess

import pytest

from tests.running import running


@pytest.mark.slow
def test_a_service_on_a_copy_leaves_the_original_and_its_jobs_alone() -> None:
    with running() as original, running() as copy:
        original.start()
        original.create("long", "sh", "-c", "echo begun; sleep 600")
        before = original.wait("long", "started")
        original.kill()
        subprocess.run(["cp", "-a", str(original.data), str(copy.data)], check=True)
        original.start()
        copy.start()
        ended = copy.wait("long", "ended")
        assert (ended["state"], ended["reason"]) == ("failed", "node lost")
        assert "runs in the data directory of which this one is a copy" in ended["replicas"][0]["message"]
        copy.create("other", "echo", "of the copy")
        assert copy.wait("other", "ended")["state"] == "succeeded"
        copy.delete("long")
        copy.terminate()
        now = original.wait("long", "started")
        assert (now["state"], now["replicas"][0]["pid"]) == ("running", before["replicas"][0]["pid"])
        original.delete("long")
