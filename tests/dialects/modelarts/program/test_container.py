"""What a program finds in its container: code, packages, directories, data, peers, limits."""

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, get, put, refused
from tests.running import ROOT, Service, reachable_directory, running
from turnout.job import from_uuid

PYTORCH = "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"
TENSORFLOW = "tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64"
HOROVOD = "horovod_0.22.1-pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
POOL = "pool1"

CONFIG = """
[engines.local]
gpus = 1

[pools.pool1]

[images]
"tests/anything:1" = "anything"

[datasets.dataset-1]
url = "obs://sets/all/"
versions = {{ v1 = "obs://sets/one/" }}

[subscriptions.subscription-1]
algorithm = "{place}/algorithm.json"

[subscriptions.versioned]
algorithm = "{place}/none.json"
versions = {{ "1.0" = "{place}/algorithm.json" }}

[subscriptions.broken]
algorithm = "{place}/none.json"

[storage]
host_paths = ["{place}/logs:rw", "{place}/code"]

[runtimes."{horovod}"]
mounts = {{ "/opt/mpi" = "{place}/mpi" }}
"""
SUBSCRIBED = {
    "metadata": {"name": "subscribed"},
    "job_config": {
        "code_dir": "/inside/tell/",
        "boot_file": "/inside/tell/tell.py",
        "engine": {"engine_id": PYTORCH},
        "parameters": [{"name": "rate", "value": "0.5", "constraint": {"type": "Float", "editable": False}}],
    },
}
TELL = """
import json, os, sys
told = {name: os.environ.get(name) for name in ("MA_JOB_DIR", "WORKSPACE", "BEFORE", "LEVEL", "HOME")}
print(json.dumps(told | {"args": sys.argv[1:], "cwd": os.getcwd(), "file": __file__, "uid": os.getuid()}))
"""
MOXED = """
import moxing as mox
mox.file.copy_parallel("obs://inside/moxing", "/cache/in")
mox.file.write("s3://inside/made/by", "moxing")
print(mox.__file__, mox.file.exists("/cache"), mox.file.list_directory("/cache/in"), mox.file.exists("obs://none/x"))
"""
MPIRUN = """#!/bin/sh
[ "$1" = --version ] && exit
echo ranks "$2"
shift 2
exec "$@"
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[Service]:
    for name in ("logs", "code", "mpi"):
        (place / name).mkdir()
    (place / "algorithm.json").write_text(json.dumps(SUBSCRIBED))
    (place / "code" / "tell.py").write_text(TELL)
    (place / "mpi" / "mpirun").write_text(MPIRUN)
    (place / "mpi" / "mpirun").chmod(0o755)
    with running(CONFIG.format(place=place, horovod=HOROVOD)) as one:
        yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    put(service, "obs://inside/tell/tell.py", TELL)
    return Cloud(service)


def preset(name: str, engine: str = PYTORCH, nodes: int = 1, **algorithm: Any) -> dict[str, Any]:
    """A job of code in a bucket."""
    base = {
        "code_dir": "/inside/tell/",
        "boot_file": "/inside/tell/tell.py",
        "engine": {"engine_id": engine},
    }
    resource = {"flavor_id": "modelarts.vm.cpu.8u", "node_count": nodes}
    return {
        "kind": "job",
        "metadata": {"name": name},
        "algorithm": base | algorithm,
        "spec": {"resource": resource},
    }


def said(service: Service, cloud: Cloud, body: dict[str, Any], task: str = "worker-0") -> str:
    """The last line of one task of a job that is run to its end."""
    made = cloud("create_training_job", body=body).metadata.id
    ended = service.wait(body["metadata"]["name"])
    log = cloud.log(made, task)
    assert ended["state"] == "succeeded", log
    return log.splitlines()[-1]


def wheel() -> bytes:
    """A package that is nowhere but here."""
    about = "only_here-1.0.dist-info"
    files = {
        "only_here.py": "ANSWER = 42",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: only-here\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def test_packages_and_what_runs_before(service: Service, cloud: Cloud):
    put(service, "obs://inside/packed/only_here-1.0-py3-none-any.whl", wheel())
    put(service, "obs://inside/packed/pip-requirements.txt", "only_here-1.0-py3-none-any.whl\n")
    put(service, "obs://inside/packed/ma-pre-start.sh", "export BEFORE=done\n")
    put(service, "obs://inside/packed/tell.py", "import only_here; print(only_here.ANSWER)" + TELL)
    body = preset("packed", code_dir="/inside/packed/", boot_file="/inside/packed/tell.py")
    told = json.loads(said(service, cloud, body))
    assert told["BEFORE"] == "done"
    log = cloud.log(cloud("list_training_jobs", body={"limit": 1}).items[0].metadata.id)
    assert "\n42\n" in log
    assert "[ModelArts Service Log] pip install" in log


def test_moxing_is_there_and_that_of_pypi_is_named(service: Service, cloud: Cloud):
    put(service, "obs://inside/moxing/moxed.py", MOXED)
    body = preset("moxed", code_dir="/inside/moxing/", boot_file="/inside/moxing/moxed.py")
    assert (
        said(service, cloud, body)
        == "/opt/turnout/bin/modules.zip/moxing/__init__.py True ['moxed.py'] False"
    )
    assert get(service, "obs://inside/made/by") == "moxing"
    put(service, "obs://inside/pypi/moxed.py", "")
    put(service, "obs://inside/pypi/pip-requirements.txt", "no-such-package-anywhere\nmoxing >= 1\n")
    body = preset("pypi", code_dir="/inside/pypi/", boot_file="/inside/pypi/moxed.py")
    made = cloud("create_training_job", body=body).metadata.id
    assert any("PyPI's package of that name has no mox.file" in event for event in cloud.events(made))
    cloud.wait_for(made, "warning: pip installs PyPI's package moxing")


def test_where_the_code_is_and_where_it_starts(service: Service, cloud: Cloud):
    default = json.loads(said(service, cloud, preset("usual", environments={"LEVEL": "7"})))
    folder = "/home/ma-user/modelarts/user-job-dir/tell"
    assert (default["cwd"], default["file"], default["WORKSPACE"]) == (folder, f"{folder}/tell.py", folder)
    assert (default["HOME"], default["LEVEL"]) == ("/home/ma-user", "7")
    body = preset("elsewhere", local_code_dir="/home/code/deep/", working_dir="/cache")
    other = json.loads(said(service, cloud, body))
    assert (other["cwd"], other["file"]) == ("/cache", "/home/code/deep/tell/tell.py")
    assert other["MA_JOB_DIR"] == "/home/code/deep"


def test_the_variables_of_the_documentation(service: Service, cloud: Cloud):
    put(service, "obs://inside/env/env.py", "import json, os; print(json.dumps(dict(os.environ)))")
    body = preset("env", nodes=2, code_dir="/inside/env/", boot_file="/inside/env/env.py")
    body["metadata"]["annotations"] = {"fault-tolerance/hang-retry": "true"}
    told = json.loads(said(service, cloud, body, "worker-1"))
    text = (ROOT / "docs" / "modelarts.md").read_text()
    (table,) = re.findall(r"\| variable \| value \|\n(.*?)\n\n", text, re.DOTALL)
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert len(named) > 15
    assert named <= set(told)
    assert (told["MA_TASK_NAME"], told["VC_TASK_INDEX"], told["MA_NUM_HOSTS"]) == ("worker", "1", "2")
    assert told["VC_WORKER_HOSTS"].split(",")[1].startswith(told["MA_CURRENT_INSTANCE_NAME"])
    assert (told["MA_HANG_DETECT_TIME"], told["MA_SCHEDULE_CNT"]) == ("30", "1")


def test_code_and_logs_on_the_machine(service: Service, cloud: Cloud, place: Path):
    code = f"file://{place}/code"
    body = preset("local", code_dir=code, boot_file=f"{code}/tell.py")
    body["spec"]["log_export_path"] = {"host_path": f"{place}/logs"}
    told = json.loads(said(service, cloud, body))
    assert told["file"] == f"{place}/code/tell.py"
    (log,) = (place / "logs").iterdir()
    assert log.name.startswith("modelarts-job-")
    assert log.name.endswith("-worker-0.log")
    assert told["file"] in log.read_text()
    body["metadata"]["name"] = "not-there"
    for outside in (f"{place}/elsewhere", f"{place}/code", f"{place}/logs/../elsewhere", "/etc"):
        body["spec"]["log_export_path"] = {"host_path": outside}
        with refused("ModelArts.2788", match="log_export_path.host_path"):
            cloud("create_training_job", body=body)


def test_datasets(service: Service, cloud: Cloud):
    put(service, "obs://sets/all/x", "all")
    put(service, "obs://sets/one/x", "one")
    inputs = [
        {"name": "new", "remote": {"dataset": {"id": "dataset-1", "service_type": "V3"}}},
        {
            "name": "old",
            "local_dir": "/old",
            "remote": {"dataset": {"id": "dataset-1", "version_id": "v1"}},
        },
    ]
    body = preset("sets", engine=PYTORCH, inputs=inputs, code_dir="", boot_file="")
    body["algorithm"]["command"] = (
        "echo $(cat $new/x) $(cat /old/x); touch /old/y 2>/dev/null && echo written"
    )
    made = cloud("create_training_job", body=body)
    assert made.algorithm.inputs[1].remote.dataset.obs_url == "obs://sets/one/"
    service.wait("sets")
    assert cloud.log(made.metadata.id).splitlines()[-1] == "all one"


def test_subscriptions(service: Service, cloud: Cloud):
    asked = {"subscription_id": "subscription-1", "item_version_id": "1.0"}
    body = preset("subscribed") | {"algorithm": asked}
    made = cloud("create_training_job", body=body)
    assert (made.algorithm.name, made.algorithm.boot_file) == ("subscribed", "/inside/tell/tell.py")
    service.wait("subscribed")
    assert '"args": ["--rate=0.5"]' in cloud.log(made.metadata.id)
    body["metadata"]["name"] = "not-editable"
    with refused("ModelArts.2814"):
        parameters = [{"name": "rate", "value": "0.1"}]
        cloud("create_training_job", body=body | {"algorithm": asked | {"parameters": parameters}})
    with refused("ModelArts.2755"):
        cloud("create_training_job", body=body | {"algorithm": asked | {"subscription_id": "other"}})
    with refused("ModelArts.2755", match="the settings"):
        cloud("create_training_job", body=body | {"algorithm": asked | {"subscription_id": "broken"}})
    assert "none.json" in service.log.read_text()
    versioned = asked | {"subscription_id": "versioned"}
    with refused("ModelArts.2755", match="no version '2.0'; its versions are: 1.0"):
        cloud("create_training_job", body=body | {"algorithm": versioned | {"item_version_id": "2.0"}})
    assert cloud("create_training_job", body=body | {"algorithm": versioned}).algorithm.name == "subscribed"


def test_names_with_hyphens_are_variables_too(service: Service, cloud: Cloud):
    put(service, "obs://hyphens/in/x", "data")
    parts = {
        "inputs": [{"name": "train-data", "remote": {"obs": {"obs_url": "/hyphens/in/"}}}],
        "outputs": [{"name": "a-b", "access_method": "env", "remote": {"obs": {"obs_url": "/hyphens/out/"}}}],
        "parameters": [{"name": "batch-size", "value": "64"}, {"name": "3d", "value": "yes"}],
        "environments": {"_3d": "own"},
    }
    command = 'echo "$batch_size $(cat $train_data/x) $a_b $_3d"'
    made = cloud.create("hyphens", command, algorithm=parts)
    service.wait("hyphens")
    outputs = "/home/ma-user/modelarts/outputs/a-b_0"
    assert cloud.log(made.metadata.id).splitlines()[-1] == f"64 data {outputs} own"
    assert any("environments._3d replaces" in event for event in cloud.events(made.metadata.id))
    twice = [{"name": "batch-size", "value": "1"}, {"name": "batch_size", "value": "2"}]
    with refused("ModelArts.2767", match="both be the environment variable batch_size"):
        cloud.create("twice", command, algorithm=parts | {"parameters": twice})
    same = parts | {
        "outputs": parts["outputs"] + [{"name": "a_b", "remote": {"obs": {"obs_url": "/hyphens/c/"}}}]
    }
    with refused("ModelArts.2753", match="both be the environment variable a_b"):
        cloud.create("twice", command, algorithm=same)
    named = parts | {"outputs": [{"name": "train-data", "remote": {"obs": {"obs_url": "/hyphens/out/"}}}]}
    with refused(
        "ModelArts.2753", match="algorithm.outputs[0].name: 'train-data' is also the name of an input"
    ):
        cloud.create("twice", command, algorithm=named)


@pytest.mark.parametrize(("asked", "got"), [({}, 1000), ({"run_user": "1234"}, 1234)])
def test_the_user(service: Service, cloud: Cloud, asked: dict[str, str], got: int):
    body = preset(f"user-{got}", engine=PYTORCH)
    body["algorithm"]["engine"] |= asked
    assert json.loads(said(service, cloud, body))["uid"] == got


def test_root_is_for_dedicated_pools(service: Service, cloud: Cloud):
    body = preset("root")
    body["algorithm"]["engine"]["run_user"] = "0"
    with refused("ModelArts.2855"):
        cloud("create_training_job", body=body)
    body["spec"]["resource"] = {"pool_id": POOL, "node_count": 1}
    assert json.loads(said(service, cloud, body))["uid"] == 0


def test_scratch_is_each_node_s_own(service: Service, cloud: Cloud):
    program = 'ls -A /cache; echo mine > /cache/x; echo "$(cat /cache/x) $(ls -A /cache)"'
    for name in ("scratch", "again"):
        body = preset(name, nodes=2, code_dir="", boot_file="", command=program)
        assert said(service, cloud, body, "worker-1") == "mine x"
        job = cloud("list_training_jobs", body={"limit": 1}).items[0].metadata.id
        assert cloud.log(job).splitlines()[1:] == ["mine x"], "nothing of the others is there"


def test_a_debug_job_s_files_stay_until_it_is_deleted(service: Service, cloud: Cloud):
    for name, runtime, stored in (("debugs", {"runtime_type": "debug"}, True), ("does-not", {}, False)):
        made = cloud.create(name, "touch ~/left", spec=runtime).metadata.id
        service.wait(name)
        own = f"{from_uuid(made)}.*/space/scratch/*/left"
        while not stored and list((service.data / "attempts").glob(own)):
            time.sleep(0.01)
        assert bool(list((service.data / "attempts").glob(own))) == stored
        cloud("delete_training_job", training_job_id=made)
        while list((service.data / "attempts").glob(f"{from_uuid(made)}.*")):
            time.sleep(0.01)


def test_volumes_are_read_and_written(service: Service, cloud: Cloud):
    put(service, "obs://disks/a/in", "from a")
    volumes = [
        {"pfs": {"pfs_path": "/disks/a/", "local_path": "/home/ma-user/pfs"}},
        {"obs": {"obs_path": "obs://disks/b/", "local_path": "/data"}},
    ]
    made = cloud.create(
        "volumes",
        "cp /home/ma-user/pfs/in /data/out && echo new > /home/ma-user/pfs/in",
        spec={"volumes": volumes},
    )
    assert service.wait("volumes")["state"] == "succeeded", cloud.log(made.metadata.id)
    assert (get(service, "obs://disks/b/out"), get(service, "obs://disks/a/in")) == ("from a", "new\n")


def test_tensorflow_on_several_nodes(service: Service, cloud: Cloud):
    told = json.loads(said(service, cloud, preset("tf", TENSORFLOW, 2), "worker-1"))
    options = dict(word.removeprefix("--").split("=", 1) for word in told["args"])
    assert (options["job_name"], options["task_index"], options["ps_hosts"]) == ("worker", "1", "")
    assert len(options["worker_hosts"].split(",")) == 2


def test_horovod_runs_all_ranks_by_mpirun(service: Service, cloud: Cloud):
    path = {"PATH": "/opt/mpi:/opt/turnout/bin:/usr/bin:/bin"}
    body = preset("horovod", HOROVOD, 2, environments=path)
    body["algorithm"]["parameters"] = [{"name": "epochs", "value": "2"}]
    assert json.loads(said(service, cloud, body))["args"] == ["--epochs=2"]
    job = cloud("list_training_jobs", body={"limit": 1}).items[0].metadata.id
    assert "\nranks 2\n" in cloud.log(job)
    assert "waits" in cloud.log(job, "worker-1")


LEARN = """
import os, socket
where = socket.create_server((os.environ["MA_CURRENT_IP"], 23456))
other, _ = where.accept()
print("met", other.recv(100).decode())
"""
WORK = """
import os, socket, time
host = os.environ["VC_LEARNER_HOSTS"].split(",")[0]
while True:
    try:
        socket.create_connection((host, 23456)).sendall(os.environ["MA_TASK_NAME"].encode())
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
"""


def test_tasks_of_different_roles_run_at_once_and_meet(service: Service, cloud: Cloud):
    tasks: list[dict[str, Any]] = []
    for role, program in (("learner", LEARN), ("actor", WORK)):
        put(service, f"obs://inside/{role}/run.py", program)
        algorithm = {
            "code_dir": f"/inside/{role}/",
            "boot_file": f"/inside/{role}/run.py",
            "engine": {"engine_id": PYTORCH},
        }
        resource = {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 1}
        tasks.append({"role": role, "algorithm": algorithm, "task_resource": resource})
    metadata = {"name": "roles", "annotations": {"job_template": "Template RL"}}
    body = {"kind": "job", "metadata": metadata, "tasks": tasks}
    assert said(service, cloud, body, "learner-0") == "met actor"


# Resources


def test_the_sdk_reads_the_first_of_several_inputs_of_a_task(service: Service, cloud: Cloud):
    for name in ("one", "two"):
        put(service, f"obs://inside/{name}/x", name)
    inputs = [{"name": name, "remote": {"obs": {"obs_url": f"/inside/{name}/"}}} for name in ("one", "two")]
    run = {"engine": {"image_url": "tests/anything:1"}, "command": "cat $one/x $two/x", "inputs": inputs}
    resource = {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
    task = {"algorithm": run, "task_resource": resource}
    body = {"kind": "hetero_job", "metadata": {"name": "several"}, "tasks": [task]}
    made = cloud("create_training_job", body=body)
    read = made.tasks[0].algorithm.inputs
    assert (read.name, read.remote.obs.obs_url) == ("one", "/inside/one/")
    service.wait("several")
    assert cloud.log(made.metadata.id).splitlines()[-1] == "onetwo"
    answer = json.loads(made.raw_content)
    assert [one["name"] for one in answer["tasks"][0]["algorithm"]["job_config"]["inputs"]] == ["one", "two"]
    answer["metadata"]["name"] = "several-again"
    again = json.loads(cloud("create_training_job", body=answer).raw_content)
    assert again["tasks"] == answer["tasks"]


@pytest.mark.parametrize("way", ["boot_file", "command"])
def test_what_a_program_prints_is_in_the_log_at_once(service: Service, cloud: Cloud, way: str):
    put(service, "obs://inside/slow/slow.py", "import time\nprint('printed')\ntime.sleep(600)\n")
    code: dict[str, Any] = {"code_dir": "/inside/slow/", "boot_file": "/inside/slow/slow.py"}
    if way == "command":
        code = {"code_dir": "/inside/slow/", "boot_file": "", "command": "python slow.py"}
    made = cloud("create_training_job", body=preset(f"slow-{way.replace('_', '-')}", **code))
    cloud.wait_for(made.metadata.id, "\nprinted")
    cloud("delete_training_job", training_job_id=made.metadata.id)


OF_OTHER_APIS = ("replica", "cluster", "gang", "the lead", "its lead", "ap-beijing")


@pytest.mark.parametrize("command", ["true", "exit 3", "kill -9 $$"])
def test_nothing_is_said_in_the_words_of_another_api(service: Service, cloud: Cloud, command: str):
    name = f"words-{command.split()[0]}"
    made = cloud.create(name, command)
    service.wait(name)
    shown = cloud.details(made.metadata.id)
    status = json.dumps(json.loads(shown.raw_content)["status"])
    said = "\n".join([status, *cloud.events(made.metadata.id)])
    assert not [word for word in OF_OTHER_APIS if word in said], said


def limits(seconds: str) -> tuple[float, float]:
    """Cores and bytes that the process which sleeps so long is limited to, as the kernel has it."""
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.name.isdecimal() and words[:2] == [b"sleep", seconds.encode()]:
                return _limits((process / "cgroup").read_text())
        except OSError:
            continue
    raise AssertionError(f"nobody sleeps {seconds}")


def _limits(cgroups: str) -> tuple[float, float]:
    groups = {
        controller: path
        for _, controllers, path in (line.split(":", 2) for line in cgroups.splitlines())
        for controller in controllers.split(",")
    }
    root = Path("/sys/fs/cgroup")
    if "memory" not in groups:
        own = root / groups[""].lstrip("/")
        quota, period = (own / "cpu.max").read_text().split()
        return int(quota) / int(period), int((own / "memory.max").read_text())
    cpu, memory = (root / name / groups[name].lstrip("/") for name in ("cpu", "memory"))
    quota, period = ((cpu / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period), int((memory / "memory.limit_in_bytes").read_text())


def test_a_flavor_is_so_many_cores_and_so_much_memory(service: Service, cloud: Cloud):
    program = "echo gpus $MA_NUM_GPUS ${CUDA_VISIBLE_DEVICES:-none}; sleep 881.5; true"
    made = cloud.create("flavored", program).metadata.id
    cloud.wait_for(made, "gpus 0 ")
    assert limits("881.5") == (2, 8 << 30)
    cloud("delete_training_job", training_job_id=made)
    card = {"resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 1}}
    made = cloud.create("with-card", "echo gpus $MA_NUM_GPUS $CUDA_VISIBLE_DEVICES", spec=card).metadata.id
    service.wait("with-card")
    assert "gpus 1 0" in cloud.log(made)


def test_who_takes_more_memory_than_that_is_told_so(service: Service, cloud: Cloud):
    small = {"cpu_core_num": 0.5, "mem_size": 0.1}
    resource = {"pool_id": POOL, "node_count": 1, "main_container_customized_flavor": small}
    program = "python -c 'x = bytearray(400 << 20)'; echo $?; exec python -c 'x = bytearray(400 << 20)'"
    made = cloud.create("greedy", program, spec={"resource": resource}).metadata.id
    assert service.wait("greedy")["state"] == "failed"
    assert "\n137\n" in cloud.log(made)
    (task,) = cloud.details(made).status.task_statuses
    assert (task.exit_code, "memory" in task.message) == (137, True)
    assert any("memory" in message for message in cloud.events(made))
