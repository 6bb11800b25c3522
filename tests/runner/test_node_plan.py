"""`plan_on_node` computes the plan of a replica on a node of a cluster, from what its runner says of the node."""

import json

import pytest

from turnout.job import Attempt, Launch, Mount, Peer, Policy, Program, ReplicaName, Resources, Role, Spec
from turnout.runner.node_plan import INHERITED, Node, NodePlan, plan_on_node
from turnout.runner.targets import Impossible

HOME = "/tmp/turnout/7.1_worker-0"
BARE = Node(HOME, "/usr/bin/python3", sandbox=False, path="/opt/slurm/bin:/usr/bin")
BOXED = BARE._replace(sandbox=True)
GANG = (
    Peer(ReplicaName("master", 0), "host-m", "10.0.0.1", (20000, 20001)),
    Peer(ReplicaName("worker", 0), "host-w", "10.0.0.2", (30000, 30001)),
)


def plan(
    node: Node,
    dialect: str = "tia",
    shared: dict[int, str] | None = None,
    env: dict[str, str] | None = None,
    **spec: object,
) -> NodePlan:
    program = Program(("python", "train.py", "--data=/data/in"))
    roles = (
        Role("master", program, leads=True, task_type="chief"),
        Role(
            "worker",
            program,
            resources=Resources.of(2, 1 << 30, 2),
            env={"MINE": "/data/in/x", "AWS_ACCESS_KEY_ID": "of the user"},
        ),
    )
    launch = Launch(Attempt(7, 1), "default", dialect, "job", Spec(roles, **spec))  # pyright: ignore[reportArgumentType]
    return plan_on_node(launch, GANG, 1, node, shared or {}, shared_env=env or {})


def test_the_gang_is_where_its_runners_are():
    env = plan(BARE).env
    assert json.loads(env["TF_CONFIG"])["cluster"] == {
        "chief": ["10.0.0.1:20000"],
        "worker": ["10.0.0.2:30000"],
    }
    assert json.loads(env["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["RANK"], env["WORLD_SIZE"]) == (
        "10.0.0.1",
        "20001",
        "1",
        "2",
    )


def test_in_the_sandbox_mounts_are_at_their_targets():
    mounts = (Mount("s3://b/in/", "/data/in", read_only=True), Mount("file:///lustre/x", "/data/x"))
    made = plan(BOXED, mounts=mounts, shared={1: "/lustre/x"}, scratch=("/cache",))
    assert made.argv == ["/usr/bin/python3", "train.py", "--data=/data/in"]
    assert made.cwd == "/data/in"
    binds = {bind.target: (bind.source, bind.read_only) for bind in made.binds}
    assert binds["/data/in"] == (f"{HOME}/copies/0", True)
    assert binds["/data/x"] == ("/lustre/x", False)
    assert binds["/cache"] == (f"{HOME}/space/scratch/0", False)
    assert {"copies/0", "space/scratch/0", "space/work"} <= set(made.dirs)
    assert "copies/1" not in made.dirs
    assert "10.0.0.1 host-m" in made.hosts
    assert made.env["MINE"] == "/data/in/x"


def test_without_one_paths_are_rewritten():
    made = plan(BARE, mounts=(Mount("s3://b/in/", "/data/in", read_only=True),))
    assert made.argv[2] == f"--data={HOME}/copies/0"
    assert made.env["MINE"] == f"{HOME}/copies/0/x"
    assert made.cwd == f"{HOME}/copies/0"
    assert (made.binds, made.hosts) == ([], "")


def test_what_is_copied():
    mounts = (
        Mount("s3://b/in/", "/in", read_only=True, files=("train.py",)),
        Mount("s3://b/out/", "/out", fetch=False, period=5),
        Mount("file:///lustre/x", "/x"),
    )
    first, second = plan(BARE, mounts=mounts, shared={2: "/lustre/x"}).mounts
    assert (first.fetch, first.save, first.optional, first.files) == (True, False, False, ("train.py",))
    assert (second.number, second.fetch, second.save, second.period, second.optional) == (
        1,
        False,
        True,
        5,
        True,
    )


def test_the_cluster_chooses_gpus_user_and_path():
    made = plan(BARE, dialect="modelarts")
    assert made.env["MA_NUM_GPUS"] == "2"
    assert not {"CUDA_VISIBLE_DEVICES", "USER"} & set(made.env)
    assert made.env["PATH"] == f"{HOME}/shims:/opt/slurm/bin:/usr/bin"
    assert {"SLURM_*", "CUDA_VISIBLE_DEVICES"} <= set(INHERITED)


def test_variables_of_all_replicas_do_not_replace_those_of_the_user():
    shared = {
        "AWS_ACCESS_KEY_ID": "JOB1A1",
        "AWS_SESSION_TOKEN": "session",
        "API_ENDPOINT_OVERRIDE": "http://x",
    }
    env = plan(BARE, env=shared).env
    assert env["AWS_ACCESS_KEY_ID"] == "of the user"
    assert "AWS_SESSION_TOKEN" not in env
    assert env["API_ENDPOINT_OVERRIDE"] == "http://x"


def test_limits_and_the_file_of_metrics():
    made = plan(BOXED, scratch=("/var/hypertune",), policy=Policy(time_limit=60, grace=5))
    assert (made.limit, made.grace, made.memory) == (60, 5, 1 << 30)
    assert made.metrics_file == "space/scratch/0/output.metrics"
    assert (
        plan(BARE, scratch=("/var/hypertune",)).metrics_file == "space/tmp/root/var/hypertune/output.metrics"
    )


def test_a_target_in_the_system_is_impossible():
    with pytest.raises(Impossible, match="/usr/data lies in a directory of the system"):
        plan(BOXED, mounts=(Mount("s3://b/in/", "/usr/data"),))
