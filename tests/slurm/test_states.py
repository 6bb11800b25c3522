"""What Slurm's commands print, in words."""

import pytest

from turnout.engines import Refused, Unreachable
from turnout.engines.remote import EndKind, Phase
from turnout.engines.slurm.commands import Answer
from turnout.engines.slurm.partitions import longest_limit, minutes
from turnout.engines.slurm.refusals import does_not_fit, refusal
from turnout.engines.slurm.states import (
    FAMILIES,
    REASONS,
    STATES,
    Row,
    accounted,
    cluster_job,
    comment_on,
    jobs_before,
    printed,
    rows,
    waiting,
)

# From the manual of squeue 24.11, "JOB STATE CODES".
ALL_STATES = [
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED", "LAUNCH_FAILED",
    "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
    "TIMEOUT",
]  # fmt: skip


def test_every_state_is_in_the_table():
    assert set(ALL_STATES) <= set(STATES)
    assert all((end is not None) == (phase is Phase.ENDED) for phase, end, _ in STATES.values())
    assert {end for _, end, _ in STATES.values()} | {EndKind.FAILED} == {None, *EndKind}


def test_an_unknown_state_is_not_an_end():
    found = cluster_job(Row("1", "turnout-1.1", "DREAMING"))
    assert (found.phase, found.why) == (Phase.RUNNING, "Slurm: its state is DREAMING")


@pytest.mark.parametrize(
    ("row", "end", "why"),
    [
        (Row("1", "n", "COMPLETED"), EndKind.EXITED, "it ended by itself"),
        (Row("1", "n", "FAILED", "NonZeroExitCode"), EndKind.EXITED, "it ended by itself, with an error"),
        (
            Row("1", "n", "FAILED", "JobLaunchFailure"),
            EndKind.FAILED,
            "it could not be started: its launch on the node failed",
        ),
        (Row("1", "n", "CANCELLED", by="user 1000"), EndKind.CANCELLED, "it was cancelled by user 1000"),
        (
            Row("1", "n", "FAILED", comment="turnout: out of memory: ps | ps-0: Killed"),
            EndKind.OUT_OF_MEMORY,
            "it used more memory than it had asked for",
        ),
        (
            Row("1", "n", "CANCELLED", comment="turnout: out of memory: ps |"),
            EndKind.CANCELLED,
            "it was cancelled",
        ),
    ],
)
def test_ends(row: Row, end: EndKind, why: str):
    found = cluster_job(row)
    assert (found.phase, found.end, found.why) == (Phase.ENDED, end, f"Slurm: {why}")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waiting for resources, 12 jobs before it in partition gpu"),
        ("Priority", "waiting for its turn, 12 jobs before it in partition gpu"),
        ("Dependency", "waiting for another job that it depends on"),
        (
            "QOSMaxGRESPerUser",
            "its QOS does not allow more for one job or user (QOSMaxGRESPerUser)",
        ),
        ("AssocGrpCpuLimit", "all jobs of its account together have what they may (AssocGrpCpuLimit)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
            "a node that it needs is not available: down, drained or reserved (UnavailableNodes:n[1-3])",
        ),
        ("PartitionDown", "partition gpu is down"),
        (
            "launch failed requeued held",
            "its launch on the node failed, and Slurm holds it (`scontrol release 7`)",
        ),
        ("SomethingNew", "waiting (SomethingNew)"),
        ("", "waiting"),
    ],
)
def test_reasons(reason: str, words: str):
    assert waiting(Row("7", "turnout-1.1", "PENDING", reason, "gpu"), 12) == words


def test_every_reason_can_be_shown():
    for reason in (*REASONS, *(start for start, _ in FAMILIES)):
        assert "{" not in waiting(Row("7", "turnout-1.1", "PENDING", reason, "gpu"), None)


def test_replicas_that_are_gone_while_the_others_go_on():
    said = "worker: srun: error: n1: task 4: Killed | my.ps: srun: error: n-2: tasks 0-1,3: Exited with exit code 1 |"
    row = Row("7", "turnout-1.1", "RUNNING", comment=f"turnout: {said}")
    assert set(cluster_job(row).gone) == {"worker-4", "my.ps-0", "my.ps-1", "my.ps-3"}
    assert not cluster_job(row._replace(comment=said)).gone
    assert not cluster_job(row._replace(state="FAILED")).gone


@pytest.mark.parametrize(
    ("submitted", "started", "waited"),
    [
        ("1795004416", "1795004417", 1.0),
        ("2026-11-18T23:59:50", "2026-11-19T00:00:10", 20.0),
        ("2026-11-18T12:20:16", "N/A", None),
    ],
)
def test_how_long_a_job_has_waited(submitted: str, started: str, waited: float | None):
    fields = ("7", "turnout-1.1", "CANCELLED", "None", "gpu", "1", "n1", submitted, started, "(null)")
    [row] = rows("\x1f".join(fields))
    assert cluster_job(row).waited == waited


def test_the_list_of_jobs():
    line = "\x1f".join(
        ("7", "turnout-1.1", "RUNNING", "None", "gpu", "4294", "n[1-2]", "100", "130", "(null)")
    )
    [row] = rows(f"Welcome to login1\n{line}\n")
    assert row == Row("7", "turnout-1.1", "RUNNING", "None", "gpu", 4294, "n[1-2]", "", waited=30.0)
    assert rows("") == []


def test_jobs_before_are_those_with_a_higher_priority_or_an_earlier_number():
    def pending(job: str, partition: str, priority: int) -> Row:
        return Row(job, "x", "PENDING", partition=partition, priority=priority)

    mine = pending("7", "gpu", 100)
    others = [
        mine, pending("3_[1-9]", "gpu", 100), pending("9", "gpu", 100), pending("9", "gpu,cpu", 200),
        pending("1", "cpu", 900), pending("2", "gpu", 50),
    ]  # fmt: skip
    assert jobs_before(mine, others) == 2


def test_what_sacct_prints():
    found = accounted("7|turnout-1.1|CANCELLED by 1000|n1|a|b\n8|turnout-2.1|OUT_OF_MEMORY|n1|\n")
    assert [(row.job, row.state, row.by, row.comment) for row in found] == [
        ("7", "CANCELLED", "user 1000", "a|b"),
        ("8", "OUT_OF_MEMORY", "", ""),
    ]


def test_last_words_in_a_comment():
    comment = "turnout: worker-1: no python | worker-10: other | worker: srun: error | ps: no | "
    assert comment_on(comment, "worker-1", "worker") == "no python\nsrun: error"
    assert comment_on("a comment of the site", "worker-1", "worker") == ""


def test_last_words_in_a_file():
    assert printed(" 0: zero\n10: ten\n 1: one\nsrun: error: x\n", 1) == "one\nsrun: error: x"
    assert printed("01: one\n11: eleven", 11) == "eleven"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2:00", 2), ("30", 0.5), ("1:30:00", 90), ("7-00:00:00", 10080), ("infinite", None), ("n/a", None)],
)
def test_time_limits(text: str, expected: float | None):
    assert minutes(text) == expected


def test_the_time_limit_of_the_partition():
    output = "cpu*\x1f1:00:00\ngpu\x1f2:00:00\n"
    assert longest_limit(output, named=False) == 60
    assert longest_limit("gpu\x1f2:00:00\n", named=True) == 120
    assert longest_limit("a\x1f2:00:00\nb\x1finfinite\n", named=True) is None
    assert longest_limit("", named=True) is None


FAILED = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("errors", "kind", "message"),
    [
        (f"{FAILED}Requested node configuration is not available", Refused, "Slurm refused the job: Requested node"),
        (f"{FAILED}Invalid account or account/partition combination specified", Refused, "Invalid account"),
        ("sbatch: unrecognized option '--x'\nTry \"sbatch --help\"", Refused, "unrecognized option '--x'"),
        (f"{FAILED}Unable to contact slurm controller (connect failure)", Unreachable, "sbatch failed: "),
        (f"{FAILED}Socket timed out on send/recv operation", Unreachable, "Socket timed out"),
        (f"{FAILED}Protocol authentication error", Unreachable, "authentication"),
        (
            f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}{POLICY}",
            Unreachable,
            "Slurm takes no further job at the moment: QOSMaxSubmitJobPerUserLimit; Job violates",
        ),
        (
            f"sbatch: error: QOSMaxCpuPerJobLimit\n{FAILED}{POLICY}",
            Refused,
            "Slurm refused the job: QOSMaxCpuPerJobLimit",
        ),
        ("ssh: connect to host login1 port 22: Connection refused", Unreachable, "ssh: connect to host"),
        ("sh: 1: sbatch: not found", Unreachable, "not found"),
    ],
)  # fmt: skip
def test_what_an_error_of_sbatch_means(errors: str, kind: type[Exception], message: str):
    error = refusal(Answer("sbatch", 1, "", errors))
    assert type(error) is kind
    assert message in str(error)


def test_what_fits_on_no_node():
    wrong = Answer("sbatch", 1, "", "allocation failure: Requested node configuration is not available")
    assert does_not_fit(wrong)
    assert not does_not_fit(Answer("sbatch", 1, "", "allocation failure: Invalid account"))
    assert not does_not_fit(Answer("sbatch", 0, "", "Job 17 to start at 2026-11-18T09:08:15"))
