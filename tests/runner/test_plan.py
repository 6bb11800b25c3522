"""`plan_gang` computes plans from the launch alone."""

import json
from pathlib import Path

import msgspec
import pytest

from turnout.job import Attempt, Launch, Peer, Policy, Program, ReplicaName, Resources, Role, Spec
from turnout.paths import Paths
from turnout.runner.plan import (
    SPILL,
    Bind,
    GangPlan,
    Impossible,
    Layout,
    ReplicaPlan,
    Runtime,
    plan_gang,
)

PATHS = Paths(Path("/data-dir"))
HOME = "/data-dir/attempts/7.1_master-0"
RUNTIME = Runtime("/opt/py/bin/python3", "/data-dir/runtimes/host", (("/opt/py", "/opt/py"),))
BOXED = Layout(sandbox=("bwrap", "--unshare-pid"), user="job")


def plan(*argv: str, layout: Layout = Layout(), binds: list[Bind] | None = None, **spec) -> ReplicaPlan:  # noqa: B008
    return gang_plan(*argv, layout=layout, binds=binds, **spec).replicas[0]


def gang_plan(
    *argv,
    layout=Layout(),  # noqa: B008
    binds=None,
    env=None,
    gpus=None,
    user=None,
    **spec,
) -> GangPlan:
    resources = Resources.of(cores=2, memory=1 << 30)
    role = Role("master", Program(argv, user=user), leads=True, env=env or {}, resources=resources)
    launch = Launch(Attempt(7, 1), "default", "tia", "cpu-job", Spec((role,), **spec), gpus or {})
    gang = (Peer(ReplicaName("master", 0), "cpu-job-master-0", "127.64.0.1", (10000, 10001, 10002, 10003)),)
    return plan_gang(launch, gang, {"": RUNTIME}, binds or [], layout, PATHS)


def after(option: str, options: list[str]) -> list[tuple[str, ...]]:
    """The two arguments after each occurrence of the option."""
    return [tuple(options[at + 1 : at + 3]) for at, word in enumerate(options) if word == option]


def test_without_a_sandbox_all_paths_are_below_the_replicas_directory():
    made = plan("python", "train.py", layout=Layout(user="job"))
    assert made.argv == ["/opt/py/bin/python3", "train.py"]
    assert made.cwd == made.env["HOME"] == f"{HOME}/space/work"
    assert made.env["TMPDIR"] == f"{HOME}/space/tmp"
    assert made.env["PATH"].startswith("/data-dir/runtimes/host:")
    assert made.env["TURNOUT_REPLICA"] == "7.1/master-0"
    assert made.sandbox == []
    assert (made.millicores, made.cpu, made.memory) == (2000, 2, 1 << 30)


def test_without_a_sandbox_modules_for_programs_are_where_the_shims_are():
    modules = "/opt/turnout/bin/modules.zip"
    assert (
        plan("x", env={"TURNOUT_MODULES": modules}).env["TURNOUT_MODULES"] == f"{RUNTIME.shims}/modules.zip"
    )
    assert plan("x", layout=BOXED, env={"TURNOUT_MODULES": modules}).env["TURNOUT_MODULES"] == modules


def test_without_a_sandbox_targets_become_real_paths():
    binds = [Bind("/real", ("code",), "/opt/code", False), Bind("/real/data", (), "/data", True)]
    made = plan(
        "/opt/code/run",
        "/data/x",
        "--in=/data",
        "--to",
        "/database",
        "a=/data",
        binds=binds,
        env={"D": "/data"},
    )
    assert made.argv == ["/real/code/run", "/real/data/x", "--in=/real/data", "--to", "/database", "a=/data"]
    assert made.cwd == made.env["TURNOUT_MOUNT_0"] == "/real/code"
    assert made.cwd_mount == 0
    assert made.env["D"] == "/real/data"
    assert made.dirs == ["space/tmp/root", "space/tmp/root/opt"]
    assert made.links == {"space/tmp/root/data": "/real/data", "space/tmp/root/opt/code": "/real/code"}


def test_the_working_directory_of_the_spec():
    binds = [Bind("/real/code", (), "/opt/code", False)]
    made = plan("true", binds=binds, working_dir="/opt/code/sub")
    assert (made.cwd, made.cwd_mount) == ("/real/code/sub", 0)
    made = plan("true", binds=binds, working_dir="/else/where")
    assert made.cwd_mount is None
    assert made.cwd == f"{HOME}/space/tmp/root/else/where"
    assert made.dirs == [
        "space/tmp/root",
        "space/tmp/root/opt",
        "space/tmp/root/else",
        "space/tmp/root/else/where",
    ]
    boxed = plan("true", binds=binds, working_dir="/else/where", layout=BOXED)
    assert after("--chdir", boxed.sandbox)[0][0] == "/else/where"


def test_in_the_sandbox_mounts_are_at_their_targets():
    binds = [Bind("/real", ("deep", "er"), "/a/b", False), Bind("/real/data", (), "/data", True)]
    whole = gang_plan("python3", "/a/b/train.py", layout=BOXED, binds=binds)
    made = whole.replicas[0]
    assert made.argv == ["/opt/py/bin/python3", "/a/b/train.py"]
    assert whole.shared.mounts == [("/real", ("deep", "er")), ("/real/data", ())]
    assert whole.shared.stage == "/data-dir/keeper/stage"
    assert made.sandbox[:2] == ["--hostname", "cpu-job-master-0"]
    assert whole.shared.sandbox == "bwrap\0--unshare-pid\0"
    assert after("--bind", made.sandbox)[-1] == ("/data-dir/keeper/stage/0", "/a/b")
    assert ("/data-dir/keeper/stage/1", "/data") in after("--ro-bind", made.sandbox)
    assert ("/opt/py", "/opt/py") in after("--ro-bind", made.sandbox)
    assert after("--chdir", made.sandbox)[0][0] == "/a/b"
    assert made.env["TURNOUT_ROOT"] == ""
    assert "127.64.0.1 cpu-job-master-0\n" in whole.shared.hosts


def test_a_replica_sees_only_its_gpus():
    layout = Layout(sandbox=("bwrap",), gpus=True, gpu_devices=("/dev/nvidiactl",))
    made = plan("true", layout=layout, gpus={"master-0": (2, 5)})
    assert made.env["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert after("--dev-bind", made.sandbox) == [
        ("/dev/nvidia2", "/dev/nvidia2"),
        ("/dev/nvidia5", "/dev/nvidia5"),
        ("/dev/nvidiactl", "/dev/nvidiactl"),
    ]
    without = plan("true", layout=layout)
    assert without.env["CUDA_VISIBLE_DEVICES"] == ""
    assert after("--dev-bind", without.sandbox) == []
    assert "CUDA_VISIBLE_DEVICES" not in plan("true").env


def test_a_long_command_line_is_passed_in_a_file():
    made = plan("echo", *["x"] * 9000, layout=BOXED)
    assert made.argv[0] == RUNTIME.python
    assert str(SPILL) in made.argv[-1]
    assert made.spill == ["echo", *["x"] * 9000]
    assert plan("echo", *["x"] * 9000).spill == []


@pytest.mark.parametrize(
    "target", ["/", "/usr", "/usr/local/x", "/etc/x", "/proc", "/a/../etc", "/a/./b", "a", "", "/dev"]
)
def test_targets_that_are_refused(target: str):
    with pytest.raises(Impossible, match="mount target"):
        plan("true", binds=[Bind("/real", (), target, False)])


@pytest.mark.parametrize(("first", "second"), [("/b", "/b/x/evil"), ("/b/x", "/b/")])
def test_a_mount_within_another_is_refused(first: str, second: str):
    with pytest.raises(Impossible, match="lies within"):
        plan("true", binds=[Bind("/real", (), first, False), Bind("/real", (), second, False)])


DATA = "/home/ma-user/inputs/data_0"


def test_in_the_sandbox_scratch_comes_before_the_mounts_within():
    binds = [Bind("/real", (), DATA, True)]
    made = plan("true", layout=BOXED, binds=binds, scratch=("/home/ma-user/", "/cache"))
    assert made.dirs == ["space/scratch", "space/scratch/0", "space/scratch/1"]
    shown = [*after("--bind", made.sandbox), *after("--ro-bind", made.sandbox)]
    assert (f"{HOME}/space/scratch/0", "/cache") in shown
    assert (f"{HOME}/space/scratch/1", "/home/ma-user") in shown
    assert made.sandbox.index("/home/ma-user") < made.sandbox.index(DATA)


def test_without_a_sandbox_the_innermost_target_wins():
    binds = [Bind("/real", (), DATA, True)]
    given = (f"--data={DATA}/x", "/home/ma-user/y", "/home/ma-user2", "/cache")
    made = plan("run", *given, binds=binds, scratch=("/home/ma-user", "/cache"), working_dir="/home/ma-user")
    root = f"{HOME}/space/tmp/root"
    moved = ["--data=/real/x", f"{root}/home/ma-user/y", "/home/ma-user2", f"{root}/cache"]
    assert made.argv == ["run", *moved]
    assert (made.cwd, made.cwd_mount) == (f"{root}/home/ma-user", None)
    assert made.links == {f"space/tmp/root{DATA}": "/real"}
    inside = {"cache", "home/ma-user", "home/ma-user/inputs"}
    assert {f"space/tmp/root/{name}" for name in inside} <= set(made.dirs)


def test_a_mount_replaces_a_scratch_directory():
    made = plan("true", binds=[Bind("/real", (), "/cache/", False)], scratch=("/cache",), layout=BOXED)
    assert made.dirs == []
    assert ("/data-dir/keeper/stage/0", "/cache/") in after("--bind", made.sandbox)


@pytest.mark.parametrize(
    ("path", "why"), [("/usr/x", "of the system"), ("x", "an absolute path"), ("/a/b/c", "lies within /a/b")]
)
def test_scratch_directories_that_are_refused(path: str, why: str):
    with pytest.raises(Impossible, match=f"scratch directory .*{why}"):
        plan("true", binds=[Bind("/real", (), "/a/b", False)], scratch=(path,))


def test_a_role_with_its_own_user():
    made = plan("true", layout=BOXED, user=1000)
    assert after("--uid", made.sandbox)[0][0] == "1000"
    assert made.passwd.startswith("job:x:1000:0::/workspace:/bin/sh\nroot:")
    assert made.env["USER"] == "job"
    root = plan("true", layout=BOXED, user=0)
    assert root.env["USER"] == root.env["LOGNAME"] == "root"
    assert root.passwd.count("root:") == 1
    bare = plan("true", user=0)
    assert (bare.passwd, bare.env["USER"]) == ("", "")


def test_a_plan_omits_what_is_not_needed():
    made = msgspec.json.decode(msgspec.json.encode(plan("true", layout=BOXED)))
    assert not {"dirs", "passwd", "links", "spill"} & made.keys()
    assert set(made["tasks"]) == {"TF_CONFIG", "CLUSTER_SPEC"}


def test_a_large_gang_is_described_once():
    roles = (
        Role("master", Program(("true",)), leads=True, task_type="chief"),
        Role("worker", Program(("true",)), 500, env={"CLUSTER_SPEC": "mine"}),
    )
    launch = Launch(Attempt(7, 1), "default", "tia", "big", Spec(roles))
    gang = tuple(
        Peer(name, f"big-{name}", "127.64.0.1", (10_000 + number, 1))
        for number, (name, _) in enumerate(launch.replicas())
    )
    made = plan_gang(launch, gang, {"": RUNTIME}, [], BOXED, PATHS)
    assert not {"TF_CONFIG", "CLUSTER_SPEC"} & made.replicas[0].env.keys()
    last = made.replicas[-1]
    told = json.loads(made.shared.maps["TF_CONFIG"] + last.tasks["TF_CONFIG"])
    assert told["cluster"]["worker"][-1] == "127.64.0.1:10500"
    assert told["task"] == {"type": "worker", "index": 499}
    assert (last.env["CLUSTER_SPEC"], "CLUSTER_SPEC" in last.tasks) == ("mine", False)
    assert len(msgspec.json.encode(last)) < 4000


def test_a_role_without_a_command_is_refused():
    with pytest.raises(Impossible, match="no command"):
        plan()


def test_users_cannot_set_the_marker():
    assert plan("true", env={"TURNOUT_REPLICA": "mine"}).env["TURNOUT_REPLICA"] == "7.1/master-0"


def test_the_message_to_the_supervisor():
    made = gang_plan("true", policy=Policy(time_limit=60, grace=3))
    message = msgspec.json.decode(msgspec.json.encode(made))
    assert (message["t"], message["a"], message["limit"], message["grace"]) == ("launch", "7.1", 60, 3)
    assert message["note"] == {"master-0": ["127.64.0.1", [10000, 10001, 10002, 10003]]}
    assert "sandbox" not in message["replicas"][0]
