"""Tests of other modules, with programs that podman runs."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local import test_limits, test_recovery, test_shell
from tests.engines.local.harness import PodmanHarness
from tests.engines.local.test_recovery import go_file as go_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="test_it_works_as_an_ordinary_user does what an ordinary user can"
    ),
]


@pytest.fixture
async def harness(base_dir: Path) -> AsyncIterator[PodmanHarness]:
    async with PodmanHarness(base_dir) as one:
        yield one


@pytest.fixture
def sandboxed(harness: PodmanHarness) -> PodmanHarness:
    return harness


test_a_child_killed_for_memory_does_not_end_the_job = (
    test_limits.test_a_child_killed_for_memory_does_not_end_the_job
)
test_a_kill_for_memory_is_reported_as_such = test_limits.test_a_kill_for_memory_is_reported_as_such
test_a_replica_gets_the_cores_that_it_requested = test_limits.test_a_replica_gets_the_cores_that_it_requested
test_processes_that_a_limited_program_leaves_behind_are_ended = (
    test_limits.test_processes_that_a_limited_program_leaves_behind_are_ended
)
test_a_new_supervisor_adopts_the_jobs_of_a_killed_one = (
    test_recovery.test_a_new_supervisor_adopts_the_jobs_of_a_killed_one
)
test_a_partly_started_gang_can_be_stopped = test_recovery.test_a_partly_started_gang_can_be_stopped
test_a_partly_started_gang_is_completed = test_recovery.test_a_partly_started_gang_is_completed
test_a_stop_continues_after_the_supervisor_is_killed = (
    test_recovery.test_a_stop_continues_after_the_supervisor_is_killed
)
test_a_supervisor_killed_at_any_point_starts_a_job_at_most_once = (
    test_recovery.test_a_supervisor_killed_at_any_point_starts_a_job_at_most_once
)
test_a_time_limit_holds_after_the_supervisor_is_killed = (
    test_recovery.test_a_time_limit_holds_after_the_supervisor_is_killed
)
test_an_adopted_program_can_be_stopped_with_its_descendants = (
    test_recovery.test_an_adopted_program_can_be_stopped_with_its_descendants
)
test_an_end_without_a_supervisor_is_reported_later = (
    test_recovery.test_an_end_without_a_supervisor_is_reported_later
)
test_jobs_survive_the_end_of_service_and_supervisor = (
    test_recovery.test_jobs_survive_the_end_of_service_and_supervisor
)
test_a_shell_counts_towards_the_replicas_limits = test_shell.test_a_shell_counts_towards_the_replicas_limits
test_a_shell_ends_with_its_replica = test_shell.test_a_shell_ends_with_its_replica
test_a_shell_has_no_privileges_in_the_sandbox = test_shell.test_a_shell_has_no_privileges_in_the_sandbox
test_a_shell_sees_the_mounts = test_shell.test_a_shell_sees_the_mounts
