"""Documents as jobs: the documentation's two examples, each part of a job, and invalid documents."""

from typing import Any

import pytest

from tests.dialects.modelarts.examples import (
    ALGORITHM_ID,
    BY_FILE,
    CPU,
    IMAGE,
    ONE,
    POOL,
    POOLED,
    PYTORCH,
    SEARCH,
    TASKS,
    TWO,
    WHOLE,
    algorithm,
    arguments,
    changed,
    code_of,
    new_job,
    options,
    shown,
)
from turnout import config
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.program.script import EngineFamily
from turnout.job import LogExport, Mount, Reason, Resources, Retry
from turnout.job.resources import GIB

CODE = "/home/ma-user/.turnout/code"
JOB_DIR = "/home/ma-user/modelarts/user-job-dir"


def test_example_one():
    new = new_job(ONE, algorithm())
    (role,) = new.spec.roles
    assert (role.name, role.replicas, role.leads) == ("worker", 1, True)
    assert role.resources == Resources.of(cores=8, memory=64 * GIB, gpus=1, disk=50 * GIB)
    assert role.program.runtime == "horovod-cp36-tf-1.16.2"
    assert role.program.wants == "Horovod 0.16.2 with TensorFlow 1.13.1 on Python 3.6"
    code = Mount("obs://xxxxxx-rse/test/moxingtest-code", CODE, read_only=True, files=("test_obs_gpu.py",))
    assert new.spec.mounts == (code,)
    folder = f"{JOB_DIR}/moxingtest-code"
    assert arguments(new)[:3] == (CODE, folder, f"{folder}/test_obs_gpu.py")
    assert EngineFamily.MPI in arguments(new)
    assert options(new) == [
        "--input_dir=obs://xxxxxx-rse/test/moxingtest-dir/",
        "--input_file=obs://xxxxxx-rse/test/moxingtest/",
        "--large_file_method=1",
    ]
    assert (new.dialect, new.scope, new.handle) == ("modelarts", "modelarts:0", "TestModelArtsJob")
    assert new.cluster == "ap-beijing"
    assert new.spec.logs is None
    assert new.spec.scratch == ("/home/ma-user", "/cache")
    assert new.labels == {
        "runtime_type": "production",
        "kind": "job",
        "algorithm_id": ALGORITHM_ID,
        "algorithm_name": "ttt-obs-gpu",
        "user_id": "somebody",
        "user_name": "somebody",
    }


def test_example_one_answers_what_the_page_answers():
    said = shown(ONE, algorithm())
    assert said["status"] == {
        "phase": "Creating",
        "secondary_phase": "Creating",
        "duration": 0,
        "start_time": 0,
        "node_count_metrics": None,
        "tasks": ["worker-0"],
    }
    assert said["algorithm"]["name"] == "ttt-obs-gpu"
    assert said["algorithm"]["engine"] == {
        "engine_id": "horovod-cp36-tf-1.16.2",
        "engine_name": "Horovod",
        "engine_version": "0.16.2-TF-1.13.1-python3.6",
    }
    assert said["algorithm"]["policies"] == {}
    assert said["algorithm"]["parameters"][2] == {
        "name": "large_file_method",
        "description": "",
        "i18n_description": None,
        "value": "1",
        "constraint": {
            "type": "Integer",
            "editable": True,
            "required": True,
            "sensitive": False,
            "valid_type": "None",
            "valid_range": [],
        },
    }
    assert "environments" not in said["algorithm"]
    assert said["spec"]["log_export_path"] == {}
    resource = said["spec"]["resource"]
    assert (resource["policy"], resource["flavor_name"]) == ("regular", "Computing GPU(V100) instance")
    assert resource["flavor_detail"]["billing"] == {"code": "modelarts.vm.gpu.free", "unit_num": 1}
    assert resource["flavor_detail"]["flavor_info"]["gpu"] == {
        "unit_num": 1,
        "product_name": "NVIDIA-V100",
        "memory": "32GB",
    }


def test_example_two():
    new = new_job(TWO)
    (role,) = new.spec.roles
    assert role.resources == Resources(gpus=1)
    assert (role.program.runtime, role.program.user) == ("fastseq", 1000)
    assert role.env == {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0"}
    assert arguments(new)[:4] == ("", "", "", "cd /home/ma-user/ddp_demo && sh run_ddp.sh")
    assert new.spec.mounts == (Mount("nfs://192.168.0.82/", "/home/ma-user/nfs"),)
    log = "obs://xxxxxx-training-test/limou/ddp-demo-log"
    assert new.spec.logs == LogExport(log, "modelarts-job-{id}-{replica}.log")
    assert new.cluster == "ap-shanghai"
    assert new.labels["pool_id"] == POOL
    detail = shown(TWO)["spec"]["resource"]["flavor_detail"]
    assert (detail["flavor_type"], detail["flavor_info"]["gpu"]["unit_num"]) == ("GPU", 1)


def test_everything_at_once():
    new = new_job(WHOLE)
    (role,) = new.spec.roles
    assert (role.replicas, role.resources) == (2, Resources.of(cores=8, memory=32 * GIB, disk=50 * GIB))
    assert role.program.user == 1102
    assert role.env == {"LEVEL": "7", "digits": "/home/ma-user/digits"}
    assert options(new) == ["--data_url=/home/ma-user/data", "--train_url=/home/ma-user/out", "--epochs=3"]
    assert new.spec.mounts == (
        Mount("obs://code/train/demo-code", CODE, read_only=True, files=("boot.py",)),
        Mount("obs://data/mnist", "/home/ma-user/data", read_only=True),
        Mount("obs://data/one", "/home/ma-user/digits", read_only=True),
        Mount("obs://models/mnist", "/home/ma-user/out", fetch=False, period=30, output=True),
    )
    assert new.spec.scratch == ("/home/ma-user", "/cache", "/home/code")
    assert arguments(new)[1] == "/home/code/demo-code"
    assert arguments(new)[4] == "/home/ma-user"
    policy = new.spec.policy
    assert (policy.time_limit, policy.priority, policy.preemptible) == (7200, 3, True)
    assert policy.hang_seconds == config.Limits().hang_seconds
    assert policy.retries == (
        Retry((Reason.NODE_LOST, Reason.KILLED, Reason.STAGING_FAILED), 3),
        Retry((Reason.PROGRAM_FAILED, Reason.PROGRAM_NOT_FOUND, Reason.OUT_OF_MEMORY, Reason.DISK_LIMIT), 3),
        Retry((Reason.HUNG,), 3),
    )
    assert new.spec.debug
    assert new.labels["runtime_type"] == "debug"
    assert new.labels["training_experiment_id"] == "e1"
    assert new.labels["train_type"] == "SFT"


def test_a_dedicated_pool():
    new = new_job(POOLED)
    assert new.spec.roles[0].resources == Resources.of(cores=2, memory=4 * GIB, gpus=1)
    assert new.spec.logs is not None
    assert new.spec.logs.to == "file:///srv/logs/jobs"
    assert new.spec.mounts[1:] == (
        Mount("obs://pfs/dir", "/home/ma-user/pfs"),
        Mount("obs://bucket/dir", "/data"),
    )


def test_a_pool_without_a_flavor_is_the_machine():
    new = new_job(changed(TWO, "spec.resource.flavor_id", None))
    assert new.spec.roles[0].resources == Resources()


def test_tasks_are_roles_and_the_first_leads():
    new = new_job(TASKS)
    learner, worker = new.spec.roles
    assert (learner.name, learner.replicas, learner.leads) == ("learner", 1, True)
    assert (worker.name, worker.replicas, worker.leads) == ("worker", 3, False)
    assert learner.resources.gpus == 1
    assert worker.resources == Resources.of(cores=8, memory=32 * GIB, disk=50 * GIB)
    assert learner.env == {"ROLE": "learner"}
    sources = {mount.target: mount.source for mount in new.spec.mounts}
    assert sources[CODE] == "obs://code/learner"
    assert sources[f"{CODE}-1"] == "obs://code/worker"
    assert sources["/home/ma-user/modelarts/inputs/seeds_2"] == "obs://data/seeds"
    said = shown(TASKS)
    assert said["status"]["tasks"] == ["learner-0", "worker-0", "worker-1", "worker-2"]
    assert said["tasks"][0]["algorithm"]["inputs"]["name"] == "data_url"
    assert said["tasks"][0]["algorithm"]["outputs"]["mode"] == "upload_periodically"
    assert said["tasks"][0]["algorithm"]["engine"]["v1_compatible"] is True
    assert said["tasks"][0]["task_resource"]["flavor_info"]["gpu"]["unit_num"] == 1


def test_default_directories_of_channels():
    channel = {"name": "data_url", "remote": {"obs": {"obs_url": "/data/mnist/"}}}
    document = changed(WHOLE, "algorithm.inputs", [channel])
    document["algorithm"]["outputs"] = [channel | {"name": "train_url"}]
    new = new_job(document)
    root = "/home/ma-user/modelarts"
    assert options(new)[:2] == [
        f"--data_url={root}/inputs/data_url_0",
        f"--train_url={root}/outputs/train_url_0",
    ]
    assert shown(document)["algorithm"]["outputs"][0]["local_dir"] == f"{root}/outputs/train_url_0"
    assert shown(document)["algorithm"]["outputs"][0]["period"] == "30s"


def test_a_command_gets_everything_as_variables():
    document = changed(WHOLE, "algorithm.engine", {"image_url": "any/thing:1"})
    document["algorithm"]["command"] = "python train.py"
    new = new_job(document)
    assert new.spec.roles[0].env == {
        "data_url": "/home/ma-user/data",
        "digits": "/home/ma-user/digits",
        "train_url": "/home/ma-user/out",
        "epochs": "3",
        "LEVEL": "7",
    }
    assert not options(new)
    assert any("any/thing:1" in note for note in new.notes)


def test_an_engine_by_name_and_with_an_image_of_its_own():
    by_name = {"engine_name": "PyTorch", "engine_version": PYTORCH}
    assert new_job(changed(WHOLE, "algorithm.engine", by_name)).spec == new_job(WHOLE).spec
    own = new_job(changed(WHOLE, "algorithm.engine", {"engine_name": "PyTorch", "image_url": "my/torch:2"}))
    assert EngineFamily.PYTORCH in arguments(own)
    assert own.spec.roles[0].program.user == 1000


def test_code_that_is_on_the_machine_already():
    document = changed(WHOLE, "algorithm.code_dir", "file:///srv/data/code")
    document["algorithm"]["boot_file"] = "file:///srv/data/code/boot.py"
    new = new_job(document)
    code = Mount("file:///srv/data/code", "/srv/data/code", read_only=True, files=("boot.py",))
    assert new.spec.mounts[0] == code
    assert arguments(new)[:3] == ("", "/srv/data/code", "/srv/data/code/boot.py")


def test_v1_engines_know_no_directories_of_their_own():
    document = changed(WHOLE, "algorithm.engine", {"engine_id": "pytorch-cp36-1.3.0"})
    new = new_job(document)
    assert arguments(new)[1] == f"{JOB_DIR}/demo-code"
    assert arguments(new)[4] == ""
    assert any("v1 engine" in note for note in new.notes)


@pytest.mark.parametrize("sent", [{"A": "1"}, [{"A": "1"}], None, {}, []])
def test_environments_in_all_the_shapes_they_have(sent: Any):
    document = changed(WHOLE, "algorithm.environments", "")
    document["algorithm"]["environments"] = sent
    assert shown(document)["algorithm"].get("environments") == (sent or None), "in the form of the request"


def test_a_job_without_a_description_has_null():
    assert shown(changed(WHOLE, "metadata.description", None))["metadata"]["description"] is None


def test_the_size_of_a_disk_is_text_in_a_job_and_a_number_in_a_task():
    job = shown(WHOLE)["spec"]["resource"]["flavor_detail"]["flavor_info"]
    task = shown(TASKS)["tasks"][1]["task_resource"]["flavor_info"]
    assert (job["disk"], task["disk"]) == ({"size": "50", "unit": "GB"}, {"size": 50, "unit": "GB"})


def test_a_version_of_an_engine_may_be_its_id_and_is_answered_as_it_was_sent():
    for engine_id in ("horovod-cp36-tf-1.16.2", PYTORCH):
        name = tables.engines()[engine_id].name
        sent = {"engine_id": engine_id, "engine_version": engine_id, "engine_name": name}
        assert shown(changed(WHOLE, "algorithm.engine", sent))["algorithm"]["engine"] == sent


# The matrix: which code for what. Each row is a document that works but for one thing.
MATRIX = [
    (WHOLE, "kind", "edge_job", "2788", "kind"),
    (WHOLE, "metadata.name", "a b", "2788", "metadata.name"),
    (WHOLE, "metadata.name", "a" * 65, "2788", "metadata.name"),
    (WHOLE, "metadata.description", "x" * 257, "2788", "metadata.description"),
    (WHOLE, "metadata.workspace_id", "a/b", "2788", "metadata.workspace_id"),
    (WHOLE, "algorithm.engine.engine_id", "pytorch-9", "2780", "algorithm.engine.engine_id"),
    (WHOLE, "algorithm.engine.engine_name", "Caffe", "2780", "algorithm.engine.engine_name"),
    (WHOLE, "algorithm.engine", {"engine_name": "PyTorch"}, "2830", "algorithm.engine.engine_id"),
    (WHOLE, "algorithm.engine", {"image_url": "a:1"}, "2806", "algorithm.command"),
    (
        TWO,
        "algorithm.engine",
        {"image_url": IMAGE, "engine_id": "none"},
        "2780",
        "algorithm.engine.engine_id",
    ),
    (TWO, "spec.resource.pool_id", "cpu-pool", "2781", "spec.resource.flavor_id"),
    (TWO, "algorithm.engine", {}, "2806", "algorithm.engine.image_url"),
    (TWO, "algorithm.command", "", "2806", "algorithm.command"),
    (WHOLE, "algorithm.command", "true", "2788", "algorithm.command"),
    (WHOLE, "algorithm.code_dir", "", "2757", "algorithm.code_dir"),
    (WHOLE, "algorithm.code_dir", "code/dir", "2757", "algorithm.code_dir"),
    (WHOLE, "algorithm.boot_file", "", "2758", "algorithm.boot_file"),
    (WHOLE, "algorithm.boot_file", "/code/train/demo-code/boot.sh", "2758", "algorithm.boot_file"),
    (WHOLE, "algorithm.boot_file", "/code/train/other/boot.py", "2792", "algorithm.boot_file"),
    (WHOLE, "algorithm.local_code_dir", "/opt/code", "2857", "algorithm.local_code_dir"),
    (WHOLE, "algorithm.local_code_dir", "/home/ma-user", "2857", "algorithm.local_code_dir"),
    (WHOLE, "algorithm.local_code_dir", "/home/ma-user/modelarts/x", "2857", "algorithm.local_code_dir"),
    (WHOLE, "algorithm.working_dir", "here", "2859", "algorithm.working_dir"),
    (WHOLE, "algorithm.engine.run_user", "12", "2855", "algorithm.engine.run_user"),
    (WHOLE, "algorithm.engine.run_user", "me", "2788", "algorithm.engine.run_user"),
    (WHOLE, "algorithm.environments", {"1A": "x"}, "2788", "algorithm.environments"),
    (WHOLE, "algorithm.inputs.0.name", "a b", "2753", "algorithm.inputs[0].name"),
    (WHOLE, "algorithm.inputs.1.name", "data_url", "2753", "algorithm.inputs[1].name"),
    (WHOLE, "algorithm.inputs.0.remote", {}, "2854", "algorithm.inputs[0].remote"),
    (WHOLE, "algorithm.inputs.0.remote", None, "2753", "algorithm.inputs[0].remote"),
    (
        WHOLE,
        "algorithm.inputs.0.remote.obs.obs_url",
        "d/m",
        "2791",
        "algorithm.inputs[0].remote.obs.obs_url",
    ),
    *(
        (WHOLE, "algorithm.inputs.0.local_dir", path, "2753", "algorithm.inputs[0].local_dir")
        for path in (
            "/",
            "/home/ma-user",
            "/home/ma-user/../x",
            "/home/ma-user/.turnout/packages",
            "/opt",
            "/opt/turnout/bin",
            "/etc/x",
            "/cache",
            "x",
            "/a\nb",
            f"/home/ma-user/{'y' * 256}",
        )
    ),
    (WHOLE, "algorithm.local_code_dir", "/home/ma-user/.turnout", "2857", "algorithm.local_code_dir"),
    (WHOLE, "algorithm.inputs.0.local_dir", "/usr/x", "2753", "algorithm.inputs[0].local_dir"),
    (WHOLE, "algorithm.inputs.0.local_dir", "/home/ma-user", "2753", "algorithm.inputs[0].local_dir"),
    (WHOLE, "algorithm.inputs.0.local_dir", "/home/ma-user/out/in", "2753", "local_dir"),
    (WHOLE, "algorithm.inputs.0.local_dir", "/home/code/in", "2857", "local_code_dir"),
    (WHOLE, "algorithm.inputs.0.access_method", "mail", "2753", "algorithm.inputs[0].access_method"),
    (
        WHOLE,
        "algorithm.inputs.0.remote_constraint.0.data_type",
        "hdfs",
        "2834",
        "algorithm.inputs[0].remote_constraint[0].data_type",
    ),
    (
        WHOLE,
        "algorithm.inputs.0.remote_constraint.0.data_type",
        "modelarts_dataset",
        "2834",
        "algorithm.inputs[0].remote",
    ),
    (WHOLE, "algorithm.inputs.1.remote.dataset.id", "x", "2783", "algorithm.inputs[1].remote.dataset.id"),
    (WHOLE, "algorithm.outputs.0.remote", None, "2753", "algorithm.outputs[0].remote.obs.obs_url"),
    (WHOLE, "algorithm.parameters.0.value", "x", "2825", "algorithm.parameters[0].value"),
    (WHOLE, "algorithm.parameters.0.value", "101", "2816", "algorithm.parameters[0].value"),
    (WHOLE, "algorithm.parameters.0.value", "", "2766", "algorithm.parameters[0]"),
    (
        WHOLE,
        "algorithm.parameters.0.constraint.valid_type",
        "Choice",
        "2765",
        "algorithm.parameters[0].value",
    ),
    (
        WHOLE,
        "algorithm.parameters.0.constraint.valid_range",
        ["9", "1"],
        "2770",
        "algorithm.parameters[0].constraint.valid_range",
    ),
    (WHOLE, "algorithm.parameters", [{"name": "a"}, {"name": "a"}], "2767", "algorithm.parameters[1].name"),
    (WHOLE, "spec.resource.flavor_id", "modelarts.vm.none", "2781", "spec.resource.flavor_id"),
    (WHOLE, "spec.resource.flavor_id", "", "2788", "spec.resource.flavor_id"),
    (WHOLE, "spec.resource.flavor_id", "modelarts.kat1.xlarge", "2815", "spec.resource.flavor_id"),
    (WHOLE, "spec.resource.flavor_id", "modelarts.pool.visual.xlarge", "2781", "spec.resource.flavor_id"),
    (TWO, "spec.resource.flavor_id", CPU, "2781", "spec.resource.flavor_id"),
    (TWO, "spec.resource.pool_id", "none", "2890", "spec.resource.pool_id"),
    (WHOLE, "spec.resource.node_count", 17, "2793", "spec.resource.node_count"),
    (WHOLE, "spec.resource.node_count", 0, "2788", "spec.resource.node_count"),
    (WHOLE, "spec.volumes", TWO["spec"]["volumes"], "2788", "spec.volumes[0].nfs"),
    (TWO, "spec.volumes.0.nfs.local_path", "/cache", "2788", "spec.volumes[0].nfs.local_path"),
    (TWO, "spec.volumes.0.nfs.nfs_server_path", "/x", "2788", "spec.volumes[0].nfs.nfs_server_path"),
    (TWO, "spec.volumes", TWO["spec"]["volumes"] * 9, "2788", "spec.volumes"),
    (WHOLE, "spec.log_export_path.obs_url", "logs", "2791", "log_export_path.obs_url"),
    (POOLED, "spec.log_export_path.host_path", "/srv/data/x", "2788", "log_export_path.host_path"),
    (WHOLE, "spec.auto_stop.time_unit", "DAYS", "2788", "spec.auto_stop.time_unit"),
    (WHOLE, "spec.auto_stop.duration", 0, "2788", "spec.auto_stop.duration"),
    (WHOLE, "spec.schedule_policy.priority", 4, "2788", "spec.schedule_policy.priority"),
    (WHOLE, "spec.notification.events.0", "JobDone", "2788", "spec.notification.events[0]"),
    *(
        (
            WHOLE,
            "metadata.annotations",
            {"fault-tolerance/job-retry-num": number},
            "2788",
            "metadata.annotations.fault-tolerance/job-retry-num",
        )
        for number in ("0", "129", "", "+1", "x")
    ),
    (BY_FILE, "algorithm.policies.auto_search", SEARCH, "2826", "algorithm.policies.auto_search"),
    (TASKS, "tasks.0.task_resource.node_count", None, "2788", "tasks[0].task_resource.node_count"),
    (
        TASKS,
        "tasks.0.algorithm.inputs.0.remote",
        {"dataset": {"id": "set-1", "version_id": "v1"}},
        "2854",
        "tasks[0].algorithm.inputs[0].remote.dataset",
    ),
    (TASKS, "tasks.1.role", "learner", "2788", "tasks[1].role"),
    (TASKS, "tasks", [], "2788", "tasks"),
    (TASKS, "spec", {"resource": {"flavor_id": CPU}}, "2788", "spec.resource"),
]


@pytest.mark.parametrize(
    ("document", "path", "value", "code", "field"),
    [pytest.param(*one, id=f"{n}-{one[3]}-{one[1]}") for n, one in enumerate(MATRIX)],
)
def test_what_is_wrong_has_its_own_code(
    document: dict[str, Any], path: str, value: Any, code: str, field: str
):
    assert code_of(changed(document, path, value)) == (code, field)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("reward_attrs", [], "2824"),
        ("reward_attrs", SEARCH["reward_attrs"] * 2, "2824"),
        ("reward_attrs.0.mode", "most", "2824"),
        ("reward_attrs.0.regex", "(", "2824"),
        ("search_params.0.param_type", "odd", "2825"),
        ("search_params.0.name", "unknown", "2826"),
        ("search_params.0.lower_bound", "10", "2826"),
        ("algo_configs.0.name", "luck", "2826"),
        ("algo_configs.0.params.0.value", "many", "2826"),
        ("algo_configs.0.params.0.key", "luck", "2826"),
        ("algo_configs.0.params.0.type", "Float", "2826"),
        ("algo_configs.0.params.0.type", "Number", "2826"),
    ],
)
def test_a_search_that_cannot_be_done(path: str, value: Any, code: str):
    wrong = changed(SEARCH, path, value)
    assert code_of(changed(WHOLE, "algorithm.policies.auto_search", wrong))[0] == code


def test_parameters_to_leave_out_of_no_search():
    alone = changed(WHOLE, "algorithm.policies.auto_search", {"skip_search_params": "lr"})
    assert code_of(alone)[0] == "2824"
