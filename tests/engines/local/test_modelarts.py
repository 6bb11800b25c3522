"""A job of ModelArts on the local engine: what its containers are promised, with the sandbox and without."""

import json
import re
from pathlib import Path

from tests.engines.local.yard import Yard
from turnout.dialects.modelarts.script import Family, Start, command
from turnout.job import Mount, Program, ReplicaName, Role, to_uuid

HOME = "/home/ma-user"
CODE = f"{HOME}/.turnout/code"
FOLDER = f"{HOME}/modelarts/user-job-dir/demo-code"
SCRATCH = (HOME, "/cache")

TELL = """
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


def code(place: Path, **files: str) -> Mount:
    directory = place / "bucket"
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return Mount(f"file://{directory}", CODE, read_only=True)


START = Start(CODE, FOLDER, f"{FOLDER}/train.py")
ZERO, ONE = ReplicaName("worker", 0), ReplicaName("worker", 1)


async def test_two_nodes_are_told_of_each_other(yard: Yard, place: Path):
    roles = workers(2, START._replace(family=Family.PYTORCH, options=("--epochs=3",)), {"MA_NUM_HOSTS": "7"})
    details = {"mounts": (code(place, train=TELL),), "scratch": SCRATCH, "working_dir": HOME}
    attempt = await yard.start(roles=roles, dialect="modelarts", **details)
    for replica in (ZERO, ONE):
        assert (await yard.ended(attempt, replica)).code == 0, yard.out(attempt, replica, 1)
    told = json.loads(yard.out(attempt, ONE).splitlines()[-1])
    env, job = told["env"], f"modelarts-job-{to_uuid(attempt.job)}"
    assert told["addresses"][1] == env["MA_CURRENT_IP"]
    assert re.fullmatch(rf"--init_method=tcp://{told['addresses'][0]}:\d+", told["args"][0])
    assert told["args"][1:] == ["--rank=1", "--world_size=2", "--epochs=3"]
    assert (env["MA_VJ_NAME"], env["MA_CURRENT_INSTANCE_NAME"]) == (job, f"{job}-worker-1")
    assert (env["VC_TASK_INDEX"], env["VC_WORKER_NUM"], env["MA_TASK_NAME"]) == ("1", "2", "worker")
    assert (env["MA_NUM_GPUS"], env["MA_SCHEDULE_CNT"]) == ("0", "1")
    assert env["MA_NUM_HOSTS"] == "7", "the user's own variables win"
    root = "" if yard.sandbox == "bubblewrap" else f"{yard.paths.replica(attempt, ONE)}/tmp/root"
    assert (told["cwd"], env["MA_HOME"], env["HOME"]) == (root + FOLDER, root + HOME, root + HOME)
    if yard.sandbox == "bubblewrap":
        assert told["name"] == f"{job}-worker-1"
        assert told["hosts"] == [f"{job}-worker-{index}.{job}" for index in (0, 1)]


async def test_mpi_runs_on_node_0_and_the_others_end_with_it(yard: Yard, place: Path):
    tools = place / "tools"
    tools.mkdir()
    (tools / "mpirun").write_text('#!/bin/sh\n[ "$1" = --version ] || { echo ran "$@"; exit 0; }\n')
    (tools / "mpirun").chmod(0o755)
    shims = "/opt/turnout/bin" if yard.sandbox == "bubblewrap" else f"{yard.paths.runtimes}/host"
    env = {"PATH": f"{tools}:/tools:{shims}:/usr/bin:/bin"}
    mounts = (code(place, train=""), Mount(f"file://{tools}", "/tools", read_only=True))
    roles = workers(2, START._replace(family=Family.MPI), env)
    attempt = await yard.start(
        roles=roles, dialect="modelarts", mounts=mounts, scratch=SCRATCH, working_dir=HOME
    )
    for replica in (ZERO, ONE):
        assert (await yard.ended(attempt, replica)).code == 0, yard.out(attempt, replica, 1)
    assert re.search(r"\nran -np 2 python \S*/demo-code/train.py\n", yard.out(attempt, ZERO))
    assert "this one waits" in yard.out(attempt, ONE)


async def test_each_node_writes_into_its_own_copy(yard: Yard, place: Path):
    program = "import os; open('mine', 'x').close(); open('/cache/x' if not os.environ['TURNOUT_ROOT'] else 'x', 'x')"
    attempt = await yard.start(
        roles=workers(3, START),
        dialect="modelarts",
        mounts=(code(place, train=program),),
        scratch=SCRATCH,
        working_dir=HOME,
    )
    for index in range(3):
        replica = ReplicaName("worker", index)
        assert (await yard.ended(attempt, replica)).code == 0, yard.out(attempt, replica, 1)
    assert [path.name for path in (place / "bucket").iterdir()] == ["train.py"]


async def test_roles_of_other_names(yard: Yard):
    show = ("sh", "-c", "env | grep ^VC_ | sort")
    roles = (
        Role("learner", Program(show), leads=True),
        Role("Actor-with-a-very-long-name", Program(show), 2),
    )
    attempt = await yard.start(roles=roles, dialect="modelarts")
    learner = ReplicaName("learner", 0)
    assert (await yard.ended(attempt, learner)).code == 0
    told = dict(line.split("=", 1) for line in yard.out(attempt, learner).splitlines())
    assert (told["VC_LEARNER_NUM"], told["VC_ACTOR_WITH_A_VERY_LONG_NAME_NUM"]) == ("1", "2")
    hosts = told["VC_LEARNER_HOSTS"] + "," + told["VC_ACTOR_WITH_A_VERY_LONG_NAME_HOSTS"]
    assert (told["VC_WORKER_NUM"], told["VC_WORKER_HOSTS"]) == ("3", hosts)
    if yard.sandbox == "bubblewrap":
        assert all(len(host.partition(".")[0]) <= 63 for host in hosts.split(","))
    for index in (0, 1):
        await yard.ended(attempt, ReplicaName("Actor-with-a-very-long-name", index))
