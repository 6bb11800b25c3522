"""Documents: the two examples of the page, and ones that together use every field there is."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from turnout import config
from turnout.dialects.modelarts import decode, translate
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.dialects.modelarts.jobs import render
from turnout.errors import Invalid
from turnout.job import Asset, Job, NewJob, State

ALGORITHM_ID = "3f5d6706-7b67-408d-8ba0-ec08048c45ed"
POOL = "poolfaf38d76"
IMAGE = "xxxxxxxx/fastseq:1.2"
PYTORCH = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
CPU = "modelarts.vm.cpu.8u"

SETTINGS = config.Settings(
    pools={POOL: config.ResourcePool("ap-shanghai"), "cpu-pool": config.ResourcePool(flavor_type="CPU")},
    images={IMAGE: "fastseq"},
    datasets={"set-1": config.DatasetSettings("obs://data/all/", {"v1": "obs://data/one/"}, "digits")},
    storage=config.StorageSettings(host_paths=["/srv/logs:rw", "/srv/data"]),
)


def parameter(name: str, kind: str = "String", **more: Any) -> dict[str, Any]:
    constraint = {"type": kind, "editable": True, "required": True, "sensitive": False, "valid_type": "None"}
    return {"name": name, "constraint": constraint | {"valid_range": []} | more}


ALGORITHM: dict[str, Any] = {
    "metadata": {"name": "ttt-obs-gpu"},
    "job_config": {
        "code_dir": "/xxxxxx-rse/test/moxingtest-code/",
        "boot_file": "/xxxxxx-rse/test/moxingtest-code/test_obs_gpu.py",
        "parameters": [
            parameter("input_dir"),
            parameter("input_file"),
            parameter("large_file_method", "Integer"),
        ],
        "engine": {"engine_id": "horovod-cp36-tf-1.16.2"},
    },
}
"""What example one names by its id."""

ONE: dict[str, Any] = {
    "kind": "job",
    "metadata": {"name": "TestModelArtsJob", "description": "This is a ModelArts job"},
    "algorithm": {
        "id": ALGORITHM_ID,
        "parameters": [
            {"name": "input_dir", "value": "obs://xxxxxx-rse/test/moxingtest-dir/"},
            {"name": "input_file", "value": "obs://xxxxxx-rse/test/moxingtest/"},
            {"name": "large_file_method", "value": "1"},
        ],
        "policies": {"auto_search": None},
        "environments": {},
    },
    "spec": {
        "resource": {"flavor_id": "modelarts.p3.large.public.free", "node_count": 1},
        "log_export_path": {"obs_url": ""},
    },
}

TWO: dict[str, Any] = {
    "kind": "job",
    "metadata": {"name": "TestModelArtsJob2", "description": "This is a ModelArts job2"},
    "algorithm": {
        "engine": {"image_url": IMAGE},
        "command": "cd /home/ma-user/ddp_demo && sh run_ddp.sh",
        "parameters": [],
        "policies": {"auto_search": None},
        "environments": {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0"},
    },
    "spec": {
        "resource": {"flavor_id": "modelarts.pool.visual.xlarge", "node_count": 1, "pool_id": POOL},
        "log_export_path": {"obs_url": "/xxxxxx-training-test/limou/ddp-demo-log/"},
        "volumes": [
            {
                "nfs": {
                    "nfs_server_path": "192.168.0.82:/",
                    "local_path": "/home/ma-user/nfs/",
                    "read_only": False,
                }
            }
        ],
    },
}

_CONSTRAINT = {
    "type": "Integer",
    "editable": True,
    "required": True,
    "sensitive": False,
    "valid_type": "Range",
    "valid_range": ["1", "100"],
}
_PARAMETER = {
    "name": "epochs",
    "value": "3",
    "description": "rounds",
    "constraint": _CONSTRAINT,
    "i18n_description": {"language": "en-us", "description": "rounds"},
}
_DATASET = {
    "name": "digits",
    "description": "a dataset",
    "local_dir": "/home/ma-user/digits",
    "access_method": "env",
    "remote": {"dataset": {"id": "set-1", "version_id": "v1", "obs_url": "/data/one/"}},
    "remote_constraint": [{"data_type": "modelarts_dataset", "attributes": '[{"data_format": "Default"}]'}],
}

WHOLE: dict[str, Any] = {
    "kind": "job",
    "metadata": {
        "id": "425b7087-83de-49ed-9e40-5bb642be956f",
        "name": "whole",
        "workspace_id": "0",
        "description": "every field",
        "create_time": 1637045545982,
        "user_name": "somebody",
        "annotations": {
            "fault-tolerance/job-retry-num": "3",
            "fault-tolerance/job-unconditional-retry": "true",
            "fault-tolerance/hang-retry": "true",
        },
        "training_experiment_reference": {"id": "e1", "name": "trial"},
    },
    "algorithm": {
        "name": "mine",
        "code_dir": "obs://code/train/demo-code/",
        "boot_file": "/code/train/demo-code/boot.py",
        "parameters": [_PARAMETER],
        "policies": {"auto_search": None},
        "inputs": [
            {
                "name": "data_url",
                "description": "what to learn",
                "local_dir": "/home/ma-user/data",
                "remote": {"obs": {"obs_url": "/data/mnist/"}},
                "remote_constraint": [{"data_type": "obs", "attributes": ""}],
            },
            _DATASET,
        ],
        "outputs": [
            {
                "name": "train_url",
                "description": "what was learnt",
                "local_dir": "/home/ma-user/out",
                "remote": {"obs": {"obs_url": "obs://models/mnist/"}},
            }
        ],
        "engine": {"engine_id": PYTORCH, "engine_name": "PyTorch", "engine_version": PYTORCH},
        "local_code_dir": "/home/code",
        "working_dir": "/home/ma-user",
        "environments": {"LEVEL": "7"},
        "summary": {"log_type": "tensorboard", "log_dir": {"pfs": {"pfs_path": "/p/l"}}},
    },
    "spec": {
        "resource": {"flavor_id": CPU, "node_count": 2},
        "log_export_path": {"obs_url": "/logs/here/"},
        "auto_stop": {"time_unit": "HOURS", "duration": 2},
        "schedule_policy": {"priority": 3, "preemptible": True, "required_affinity": {"affinity_type": "x"}},
        "notification": {"topic_urn": "urn:smn:1", "events": ["JobStarted", "JobFailed"]},
        "runtime_type": "debug",
        "log_export_config": {"version": "v1", "rotation_enabled": True},
        "retention": {"policy": "enabled"},
        "reserved_time": {"time_unit": "HOURS", "duration": 1},
        "custom_metrics": [{"exec": {"command": ["true"]}}, {"http_get": {"path": "/m", "port": 80}}],
        "output_model": {"obs": {"obs_path": "/m/", "local_path": "/home/ma-user/m"}},
        "asset_model": {"name": "model"},
        "asset_id": "a1",
    },
    "endpoints": {"ssh": {"key_pair_names": ["pair"]}},
    "train_type": "SFT",
    "ftjob_config": {"ft_train_type": "LORA"},
}
"""From code_dir and boot_file, on the public pool."""

POOLED = deepcopy(TWO)
"""In a dedicated pool, with logs on the host."""
POOLED["metadata"]["name"] = "pooled"
POOLED["spec"]["log_export_path"] = {"host_path": "/srv/logs/jobs"}
POOLED["spec"]["resource"]["main_container_customized_flavor"] = {
    "cpu_core_num": 2,
    "mem_size": 4,
    "accelerator_num": 1,
}
POOLED["spec"]["volumes"] += [
    {"pfs": {"pfs_path": "/pfs/dir/", "local_path": "/home/ma-user/pfs"}},
    {"obs": {"obs_path": "obs://bucket/dir/", "local_path": "/data"}},
]

TASKS: dict[str, Any] = {
    "kind": "job",
    "metadata": {"name": "hetero", "annotations": {"job_template": "Template RL"}},
    "tasks": [
        {
            "role": "learner",
            "algorithm": {
                "job_config": {
                    "parameters": [_PARAMETER],
                    "inputs": [_DATASET],
                    "outputs": [
                        {
                            "name": "unused",
                            "description": "a fallback",
                            "local_dir": "/home/ma-user/unused",
                            "remote": {"obs": {"obs_url": "/unused/"}},
                        }
                    ],
                    "engine": {"engine_id": PYTORCH, "engine_name": "PyTorch", "engine_version": PYTORCH},
                },
                "code_dir": "/code/learner/",
                "boot_file": "/code/learner/learn.py",
                "engine": {
                    "engine_id": "caffe-1.0.0-python2.7",
                    "engine_name": "Caffe",
                    "engine_version": "Caffe-1.0.0-python2.7",
                },
                "inputs": [
                    {
                        "name": "data_url",
                        "description": "experience",
                        "local_dir": "/home/ma-user/experience",
                        "remote": {"obs": {"obs_url": "/data/experience/"}},
                    }
                ],
                "outputs": [
                    {
                        "name": "train_url",
                        "description": "a policy",
                        "local_dir": "/home/ma-user/policy",
                        "remote": {"obs": {"obs_url": "/models/policy/"}},
                    }
                ],
                "local_code_dir": "/home/learner",
                "working_dir": "/home/ma-user",
                "environments": {"ROLE": "learner"},
            },
            "task_resource": {"flavor_id": "modelarts.p3.large.public.free", "node_count": 1},
            "log_export_path": {"obs_url": "/logs/hetero/"},
        },
        {
            "algorithm": {
                "code_dir": "/code/worker/",
                "boot_file": "/code/worker/work.py",
                "engine": {"image_url": IMAGE, "engine_name": "PyTorch"},
                "job_config": {
                    "inputs": [
                        {
                            "name": "digits",
                            "access_method": "env",
                            "local_dir": "/home/ma-user/digits-2",
                            "remote": {"obs": {"obs_url": "/data/one/"}},
                            "remote_constraint": [{"data_type": "obs"}],
                        },
                        {"name": "seeds", "remote": {"obs": {"obs_url": "/data/seeds/"}}},
                    ],
                    "outputs": [
                        {
                            "name": "train_url",
                            "description": "results",
                            "local_dir": "/home/ma-user/results",
                            "remote": {"obs": {"obs_url": "/models/worker/"}},
                        }
                    ],
                    "engine": {"image_url": IMAGE},
                },
            },
            "task_resource": {"flavor_id": CPU, "node_count": 3},
        },
    ],
}

SEARCH: dict[str, Any] = {
    "skip_search_params": "",
    "reward_attrs": [{"name": "acc", "mode": "max", "regex": r"acc=([0-9.]+)"}],
    "search_params": [
        {
            "name": "epochs",
            "param_type": "continuous",
            "lower_bound": "1",
            "upper_bound": "9",
            "discrete_points_num": "3",
            "discrete_values": [],
        }
    ],
    "algo_configs": [
        {"name": "bayes_opt_search", "params": [{"key": "num_samples", "value": "5", "type": "Integer"}]}
    ],
}


BY_FILE: dict[str, Any] = WHOLE | {
    "metadata": WHOLE["metadata"] | {"name": "by-file"},
    "algorithm": WHOLE["algorithm"]
    | {
        "autosearch_config_path": "obs://code/search.yaml",
        "autosearch_framework_path": "obs://code/framework/",
    },
}
"""What is searched is said in a file."""


def algorithm(document: dict[str, Any] = ALGORITHM, id: str = ALGORITHM_ID) -> Asset:
    """As the store would have it."""
    decoded = decode.decode_algorithm(json.dumps(document).encode())
    stored = stored_algorithm(decoded, "somebody")
    name = document["metadata"]["name"]
    return Asset("p1", "algorithm", id, "0", name, 0, 0, json.dumps(stored).encode())


def new_job(
    document: dict[str, Any],
    asset: Asset | None = None,
    settings: config.Settings = SETTINGS,
    config: bytes | None = None,
) -> NewJob:
    place = translate.TranslationContext("p1", settings, "somebody")
    return translate.new_job(decode.decode_job(json.dumps(document).encode()), place, asset, config=config)


def row(new: NewJob, **fields: Any) -> Job:
    """The job that comes of it."""
    base: dict[str, Any] = {"state": State.QUEUED, "priority": new.spec.policy.priority}
    base |= {"created": 10**18, "updated": 10**18}
    return Job(
        1_637_045_545_982 << 20,
        new.project,
        new.dialect,
        new.scope,
        new.handle,
        new.name,
        new.cluster,
        **(base | fields),
    )


def shown(document: dict[str, Any], asset: Asset | None = None) -> dict[str, Any]:
    """What creating it answers."""
    new = new_job(document, asset)
    return render.created(row(new), msgspec.json.decode(new.document))


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at `spec.resource.flavor_id` or `algorithm.inputs.0.name`; None takes it out."""
    copy = deepcopy(document)
    *above, last = path.split(".")
    place: Any = copy
    for name in above:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    key: Any = int(last) if isinstance(place, list) else last
    if value is None:
        del place[key]
    else:
        place[key] = value
    return copy


def arguments(new: NewJob, role: int = 0) -> tuple[str, ...]:
    """code, folder, boot file, command, working directory, packages, family, nodes, autosearch, framework; options."""
    return new.spec.roles[role].program.command[4:]


def options(new: NewJob) -> list[str]:
    return [word for word in arguments(new) if word.startswith("--")]


def code_of(document: dict[str, Any], **more: Any) -> tuple[str, str]:
    """The code and the field of the refusal."""
    with pytest.raises(Invalid) as caught:
        new_job(document, **more)
    assert caught.value.message.startswith(caught.value.field) or caught.value.code.endswith("2755")
    return caught.value.code.removeprefix("ModelArts."), caught.value.field
