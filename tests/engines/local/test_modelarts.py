"""A ModelArts job on the local engine gets what ModelArts promises to containers, with and without the sandbox."""

import json
import re
from pathlib import Path

from tests.engines.local.harness import EngineHarness
from turnout.dialects.modelarts.program.script import EngineFamily, Start, command
from turnout.job import Mount, Program, ReplicaName, Role, to_uuid

HOME = "/home/ma-user"
CODE = f"{HOME}/.turnout/code"
CODE_DIRECTORY = f"{HOME}/modelarts/user-job-dir/demo-code"
SCRATCH = (HOME, "/cache")

PRINT_ENVIRONMENT = """
import json, os, socket, sys
hosts = os.environ["VC_WORKER_HOSTS"].split(",")
print(json.dumps({
    "args": sys.argv[1:],
    "addresses": [socket.gethostbyname(host) for host in hosts],
    "hosts": hosts,
    "cwd": os.getcwd(),
    "name": socket.gethostname(),
    "env": {name: value for name, value in os.environ.items() if name[:3] in ("MA_", "VC_", "HOM")},
}))
open(os.environ["MA_JOB_DIR"] + "/made", "w").close()
"""


def workers(count: int, start: Start, env: dict[str, str] | None = None) -> tuple[Role, ...]:
    program = Program(command(start._replace(nodes=count)), user=1000)
    return (Role("worker", program, count, env=env or {}, leads=True),)


def code(base_dir: Path, **files: str) -> Mount:
    directory = base_dir / "bucket"
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return Mount(f"file://{directory}", CODE, read_only=True)


START = Start(CODE, CODE_DIRECTORY, f"{CODE_DIRECTORY}/train.py")
ZERO, ONE = ReplicaName("worker", 0), ReplicaName("worker", 1)


async def test_two_nodes_know_each_other(harness: EngineHarness, base_dir: Path):
    roles = workers(
        2, START._replace(family=EngineFamily.PYTORCH, options=("--epochs=3",)), {"MA_NUM_HOSTS": "7"}
    )
    details = {"mounts": (code(base_dir, train=PRINT_ENVIRONMENT),), "scratch": SCRATCH, "working_dir": HOME}
    attempt = await harness.start(roles=roles, dialect="modelarts", **details)
    for replica in (ZERO, ONE):
        assert (await harness.ended(attempt, replica)).code == 0, harness.output(attempt, replica, 1)
    printed = json.loads(harness.output(attempt, ONE).splitlines()[-1])
    env, job = printed["env"], f"modelarts-job-{to_uuid(attempt.job)}"
    assert printed["addresses"][1] == env["MA_CURRENT_IP"]
    assert re.fullmatch(rf"--init_method=tcp://{printed['addresses'][0]}:\d+", printed["args"][0])
    assert printed["args"][1:] == ["--rank=1", "--world_size=2", "--epochs=3"]
    assert (env["MA_VJ_NAME"], env["MA_CURRENT_INSTANCE_NAME"]) == (job, f"{job}-worker-1")
    assert (env["VC_TASK_INDEX"], env["VC_WORKER_NUM"], env["MA_TASK_NAME"]) == ("1", "2", "worker")
    assert (env["MA_NUM_GPUS"], env["MA_SCHEDULE_CNT"]) == ("0", "1")
    assert env["MA_NUM_HOSTS"] == "7", "the user's own variables win"
    root = "" if harness.sandbox == "bubblewrap" else f"{harness.paths.replica(attempt, ONE)}/space/tmp/root"
    assert (printed["cwd"], env["MA_HOME"], env["HOME"]) == (root + CODE_DIRECTORY, root + HOME, root + HOME)
    if harness.sandbox == "bubblewrap":
        assert printed["name"] == f"{job}-worker-1"
        assert printed["hosts"] == [f"{job}-worker-{index}.{job}" for index in (0, 1)]


async def test_mpi_runs_on_node_0_and_the_others_end_with_it(harness: EngineHarness, base_dir: Path):
    tools = base_dir / "tools"
    tools.mkdir()
    (tools / "mpirun").write_text('#!/bin/sh\n[ "$1" = --version ] || { echo ran "$@"; exit 0; }\n')
    (tools / "mpirun").chmod(0o755)
    shims = "/opt/turnout/bin" if harness.sandbox == "bubblewrap" else f"{harness.paths.runtimes}/host"
    env = {"PATH": f"{tools}:/tools:{shims}:/usr/bin:/bin"}
    mounts = (code(base_dir, train=""), Mount(f"file://{tools}", "/tools", read_only=True))
    roles = workers(2, START._replace(family=EngineFamily.MPI), env)
    attempt = await harness.start(
        roles=roles, dialect="modelarts", mounts=mounts, scratch=SCRATCH, working_dir=HOME
    )
    for replica in (ZERO, ONE):
        assert (await harness.ended(attempt, replica)).code == 0, harness.output(attempt, replica, 1)
    assert re.search(r"\nran -np 2 python \S*/demo-code/train.py\n", harness.output(attempt, ZERO))
    assert "this node waits" in harness.output(attempt, ONE)


async def test_each_node_writes_into_its_own_copy(harness: EngineHarness, base_dir: Path):
    program = "import os; open('mine', 'x').close(); open('/cache/x' if not os.environ['TURNOUT_ROOT'] else 'x', 'x')"
    attempt = await harness.start(
        roles=workers(3, START),
        dialect="modelarts",
        mounts=(code(base_dir, train=program),),
        scratch=SCRATCH,
        working_dir=HOME,
    )
    for index in range(3):
        replica = ReplicaName("worker", index)
        assert (await harness.ended(attempt, replica)).code == 0, harness.output(attempt, replica, 1)
    assert [path.name for path in (base_dir / "bucket").iterdir()] == ["train.py"]


async def test_roles_can_have_other_names(harness: EngineHarness):
    show = ("sh", "-c", "env | grep ^VC_ | sort")
    roles = (
        Role("learner", Program(show), leads=True),
        Role("Actor-with-a-very-long-name", Program(show), 2),
    )
    attempt = await harness.start(roles=roles, dialect="modelarts")
    learner = ReplicaName("learner", 0)
    assert (await harness.ended(attempt, learner)).code == 0
    printed = dict(line.split("=", 1) for line in harness.output(attempt, learner).splitlines())
    assert (printed["VC_LEARNER_NUM"], printed["VC_ACTOR_WITH_A_VERY_LONG_NAME_NUM"]) == ("1", "2")
    hosts = printed["VC_LEARNER_HOSTS"] + "," + printed["VC_ACTOR_WITH_A_VERY_LONG_NAME_HOSTS"]
    assert (printed["VC_WORKER_NUM"], printed["VC_WORKER_HOSTS"]) == ("3", hosts)
    if harness.sandbox == "bubblewrap":
        assert all(len(host.partition(".")[0]) <= 63 for host in hosts.split(","))
    for index in (0, 1):
        await harness.ended(attempt, ReplicaName("Actor-with-a-very-long-name", index))
