"""What Terraform's provider for Huawei Cloud sends when it runs its own acceptance tests, request by request.

The configurations are those of the tests. The provider compares each answer with the configuration: a difference would
be a change that it tries to make again and again.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, put, send
from tests.running import Service, running

POOL = "pool-1"
IMAGE = "swr.example/group/train:1"
FLAVOR = "modelarts.vm.cpu.2u"
ENGINES = [
    ("PyTorch", "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"),
    ("Horovod", "horovod-cp36-tf-1.16.2"),
]
CREATED = ("Running", "Completed", "Pending", "Failed", "Abnormal")
"""The phases in which the provider takes a job as created."""
JOB_DIR = "/home/ma-user/modelarts/user-job-dir"
BOOT = "import os\nprint(os.getcwd())\n"
SEARCH = {
    "reward_attrs": [{"name": "search", "mode": "max", "regex": "10.0"}],
    "search_params": [{"name": "workers", "lower_bound": "10", "upper_bound": "20"}],
    "algo_configs": [
        {
            "name": "tpe_search",
            "params": [
                {"key": "seed", "value": "1", "type": "Integer"},
                {"key": "gamma", "value": "0.25", "type": "Float"},
                {"key": "n_initial_points", "value": "20", "type": "Integer"},
                {"key": "num_samples", "value": "20", "type": "Integer"},
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running(f"[pools.{POOL}]\n") as one:
        yield one.start()


def call(service: Service, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = send(service, method, f"/v2/default/{path}", "" if body is None else json.dumps(body))
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def create(service: Service, body: dict[str, Any]) -> str:
    job_id = call(service, "POST", "training-jobs", body, 201)["metadata"]["id"]
    assert call(service, "GET", f"training-jobs/{job_id}")["status"]["phase"] in CREATED
    return job_id


def destroy(service: Service, job_id: str) -> None:
    call(service, "DELETE", f"training-jobs/{job_id}", status=202)
    gone = call(service, "GET", f"training-jobs/{job_id}", status=400)
    assert gone["error_code"] == "ModelArts.2775"


def tag(service: Service, job_id: str, action: str, **tags: str) -> None:
    body = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
    method = "POST" if action == "create" else "DELETE"
    call(service, method, f"modelarts-training-job/{job_id}/tags/{action}", body, 204)


def tags(service: Service, job_id: str) -> dict[str, str]:
    found = call(service, "GET", f"modelarts-training-job/{job_id}/tags")["tags"]
    return {one["key"]: one["value"] for one in found}


def has(answer: Any, sent: Any) -> bool:
    """Whether the answer has all that was sent, as it was sent."""
    if isinstance(sent, dict):
        return all(key in answer and has(answer[key], value) for key, value in sent.items())
    if isinstance(sent, list):
        return len(answer) == len(sent) and all(map(has, answer, sent))
    return answer == sent


@pytest.mark.parametrize(("engine", "engine_id"), ENGINES, ids=lambda one: one)
def test_a_job_of_an_algorithm(service: Service, engine: str, engine_id: str):
    name = f"tf-test-{engine.lower()}"
    put(service, f"obs://{name}/training_job/bootfile.py", BOOT)
    code = {"code_dir": f"/{name}/training_job/", "boot_file": f"/{name}/training_job/bootfile.py"}
    chosen = {"engine_id": engine_id, "engine_name": engine, "engine_version": engine_id}
    algorithm = {
        "metadata": {"name": name, "tags": []},
        "job_config": {
            **code,
            "engine": chosen,
            "inputs": [
                {
                    "name": "epochs",
                    "description": "Training epochs",
                    "access_method": "parameter",
                    "remote_constraints": [{"data_type": "obs"}],
                }
            ],
            "outputs": [{"name": "train_url", "access_method": "env", "description": "Training URL"}],
            "parameters_customization": True,
            "parameters": [
                {"name": "workers", "value": "4", "constraint": {"type": "Float", "valid_type": "None"}}
            ],
        },
        "advanced_config": {"auto_search": SEARCH},
    }
    made = call(service, "POST", "algorithms", algorithm, 201)
    algorithm_id = made["metadata"]["id"]
    shown = call(service, "GET", f"algorithms/{algorithm_id}")
    assert has(shown["job_config"], algorithm["job_config"])
    assert has(shown["advanced_config"], algorithm["advanced_config"])
    assert shown["job_config"]["parameters"][0]["constraint"]["editable"] is False
    experiment = call(service, "POST", "training-experiments", {"metadata": {"name": name}}, 201)

    remote = {"obs": {"obs_url": code["code_dir"]}}
    job = {
        "kind": "job",
        "metadata": {
            "name": name,
            "description": "Created by Terraform script",
            "annotations": {
                "fault-tolerance/job-retry-num": "3",
                "fault-tolerance/hang-retry": "true",
                "ssh-plugin/ssh-key-file-path": "/home/ma-user/.ssh/",
            },
            "training_experiment_reference": {"id": experiment["metadata"]["id"]},
        },
        "algorithm": {
            "id": algorithm_id,
            **code,
            "environments": {"TRAIN_URL": f"{JOB_DIR}/envs"},
            "inputs": [
                {
                    "name": "epochs",
                    "description": "Training epochs",
                    "access_method": "parameter",
                    "local_dir": "/home/ma-user/modelarts/inputs/epochs_0",
                    "remote": remote,
                }
            ],
            "outputs": [
                {
                    "name": "train_url",
                    "description": "Training URL",
                    "access_method": "env",
                    "local_dir": "/home/ma-user/modelarts/outputs/train_url_0",
                    "remote": remote,
                }
            ],
            "parameters": [
                {
                    "name": "workers",
                    "value": "4",
                    "constraint": {
                        "type": "Float",
                        "editable": False,
                        "required": False,
                        "valid_type": "None",
                    },
                }
            ],
        },
        "spec": {
            "resource": {"flavor_id": FLAVOR, "node_count": 1},
            "log_export_path": {"obs_url": f"/{name}/logs/", "host_path": "/var/log/training"},
            "log_export_config": {"version": "v1", "rotation_enabled": True},
            "auto_stop": {"time_unit": "HOURS", "duration": 2},
            "notification": {"topic_urn": "urn:smn:region:1:topic", "events": ["JobStarted", "JobCompleted"]},
            "custom_metrics": [{"http_get": {"path": "/raw_text", "port": 10001}}],
        },
    }
    job_id = create(service, job)
    tag(service, job_id, "create", foo="bar")
    shown = call(service, "GET", f"training-jobs/{job_id}")
    assert has(shown, job)
    assert shown["spec"]["runtime_type"] == "production"
    assert shown["algorithm"]["engine"] == chosen
    assert isinstance(shown["metadata"]["create_time"], int)
    assert tags(service, job_id) == {"foo": "bar"}
    events = Cloud(service).events(job_id)
    assert any("log_export_path.host_path has no effect" in event for event in events)

    call(service, "PUT", f"training-jobs/{job_id}", {"description": ""})
    tag(service, job_id, "delete", foo="bar")
    tag(service, job_id, "create", owner="terraform")
    assert not call(service, "GET", f"training-jobs/{job_id}")["metadata"]["description"]
    assert tags(service, job_id) == {"owner": "terraform"}
    destroy(service, job_id)
    call(service, "DELETE", f"algorithms/{algorithm_id}", status=202)
    assert call(service, "GET", f"algorithms/{algorithm_id}", status=400)["error_code"] == "ModelArts.2755"


def test_a_job_whose_search_configuration_does_not_exist(service: Service):
    name, (engine, engine_id) = "tf-test-custom", ENGINES[0]
    put(service, f"obs://{name}/training_job/bootfile.py", BOOT)
    job = {
        "kind": "job",
        "metadata": {"name": f"{name}_custom", "description": "Created by Terraform script"},
        "algorithm": {
            "code_dir": f"/{name}/training_job/",
            "boot_file": f"/{name}/training_job/bootfile.py",
            "autosearch_config_path": "/config/autosearch.yaml",
            "autosearch_framework_path": "/framework/",
            "local_code_dir": JOB_DIR,
            "working_dir": JOB_DIR,
            "engine": {
                "engine_id": engine_id,
                "engine_name": engine,
                "engine_version": engine_id,
                "install_sys_packages": False,
            },
        },
        "spec": {"resource": {"flavor_id": FLAVOR, "node_count": 1}},
    }
    job_id = create(service, job)
    tag(service, job_id, "create", foo="bar")
    service.wait(f"{name}_custom")
    shown = call(service, "GET", f"training-jobs/{job_id}")
    assert has(shown, job)
    assert (shown["status"]["phase"], shown["status"]["tasks"]) == ("Failed", ["worker-0"])
    why = "algorithm.autosearch_config_path: there was nothing at '/config/autosearch.yaml'"
    assert why in Cloud(service).log(job_id)
    assert any(why in event for event in Cloud(service).events(job_id))
    call(service, "PUT", f"training-jobs/{job_id}", {"description": "Updated by Terraform script"})
    tag(service, job_id, "delete", foo="bar")
    assert tags(service, job_id) == {}
    destroy(service, job_id)


@pytest.mark.parametrize("kind", ["required_affinity", "preferred_affinity"])
def test_a_debug_job_in_a_pool(service: Service, kind: str):
    name = f"tf-test-{kind.replace('_', '-')}"
    put(service, f"obs://{name}/{name}/bootfile.py", BOOT)
    (pool,) = call(service, "GET", "pools")["items"]
    (node,) = call(service, "GET", f"pools/{POOL}/nodes")["items"]
    match = {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node["status"]["privateIp"]]}
        ]
    }
    affinity = {
        "required_affinity": {"node_affinity": {"nodeSelectorTerms": [match]}},
        "preferred_affinity": {"node_affinity": [{"weight": 100, "preference": match}]},
    }
    job = {
        "kind": "job",
        "metadata": {
            "name": name,
            "workspace_id": pool["metadata"]["labels"]["os.modelarts/workspace.id"],
            "annotations": {"jupyter-lab/enable": "true"},
        },
        "algorithm": {
            "code_dir": f"/{name}/{name}/",
            "command": "python train.py --epochs 10",
            "autosearch_config_path": "/config/autosearch.yaml",
            "autosearch_framework_path": "/framework/",
            "local_code_dir": JOB_DIR,
            "working_dir": JOB_DIR,
            "engine": {"image_url": IMAGE, "install_sys_packages": False},
        },
        "spec": {
            "resource": {
                "pool_id": POOL,
                "node_count": 1,
                "main_container_customized_flavor": {"cpu_core_num": 2, "mem_size": 10},
            },
            "runtime_type": "debug",
            "volumes": [
                {
                    "nfs": {
                        "nfs_server_path": "nas.local:/share/work",
                        "local_path": "/mnt/nfs/",
                        "read_only": False,
                    }
                }
            ],
            "schedule_policy": {"priority": 1, "preemptible": True, kind: affinity[kind]},
        },
        "endpoints": {"ssh": {"key_pair_names": ["pair"]}},
    }
    job_id = create(service, job)
    assert has(call(service, "GET", f"training-jobs/{job_id}"), job)
    destroy(service, job_id)


def test_an_algorithm_and_its_updates(service: Service):
    name, (engine, engine_id) = "tf-test-algorithm", ENGINES[0]
    put(service, f"obs://{name}/algorithm/bootfile.py", BOOT)
    made = send(service, "POST", "/v1/default/workspaces", json.dumps({"name": name}))
    workspace = made.json()["id"]
    attributes = {"data_format": ["CarbonData"], "data_segmentation": ["false"], "dataset_type": ["0"]}
    first = {
        "metadata": {
            "name": name,
            "description": "Created by terraform script",
            "tags": [{"key": "auto_search"}],
        },
        "job_config": {
            "code_dir": f"/{name}/algorithm/",
            "boot_file": f"/{name}/algorithm/bootfile.py",
            "engine": {"engine_id": engine_id, "engine_name": engine, "engine_version": engine_id},
            "parameters_customization": True,
            "parameters": [
                {
                    "name": "parameter2",
                    "description": "parameter2 description",
                    "value": "10",
                    "constraint": {"type": "Float", "valid_type": "None"},
                },
                {
                    "name": "parameter1",
                    "description": "parameter1",
                    "constraint": {
                        "type": "Float",
                        "editable": True,
                        "required": True,
                        "valid_range": ["10", "50"],
                    },
                },
            ],
            "inputs": [
                {
                    "name": "input1",
                    "description": "Input parameter1",
                    "access_method": "parameter",
                    "remote_constraints": [
                        {"data_type": "obs"},
                        {"data_type": "modelarts_dataset", "attributes": attributes},
                    ],
                },
                {
                    "name": "a_input2",
                    "access_method": "env",
                    "remote_constraints": [{"data_type": "obs"}],
                },
            ],
            "outputs": [
                {"name": "output1", "description": "Output parameter1", "access_method": "env"},
                {"name": "aoutput2", "access_method": "parameter"},
            ],
        },
        "resource_requirements": [
            {"key": "flavor_type", "values": ["Ascend", "CPU"], "operator": "in"},
            {"key": "device_distributed_mode", "values": ["singular"], "operator": "in"},
            {"key": "host_distributed_mode", "values": ["multiple"], "operator": "in"},
        ],
        "advanced_config": {
            "auto_search": {
                "reward_attrs": SEARCH["reward_attrs"],
                "search_params": [
                    {"name": "parameter2", "lower_bound": "10", "upper_bound": "20"},
                    {"name": "parameter1", "lower_bound": "20", "upper_bound": "30"},
                ],
                "algo_configs": [
                    {
                        "name": "bayes_opt_search",
                        "params": [
                            {"key": "num_samples", "value": "20", "type": "Integer"},
                            {"key": "kind", "value": "ucb", "type": "String"},
                        ],
                    }
                ],
            }
        },
    }
    algorithm_id = call(service, "POST", "algorithms", first, 201)["metadata"]["id"]
    shown = call(service, "GET", f"algorithms/{algorithm_id}")
    assert has(shown, first)
    constraints = [one["constraint"] for one in shown["job_config"]["parameters"]]
    assert [(one["editable"], one["required"]) for one in constraints] == [(False, False), (True, True)]
    none = {"reward_attrs": [], "search_params": [], "algo_configs": []}
    last = {
        "metadata": {"name": name, "workspace_id": workspace, "tags": []},
        "job_config": {
            "code_dir": f"/{name}/algorithm/",
            "command": "bash ${MA_JOB_DIR}/algorithm/bootfile.py",
            "engine": {"image_url": IMAGE},
            "inputs": [],
            "outputs": [],
            "parameters": [],
            "parameters_customization": False,
        },
        "resource_requirements": [],
        "advanced_config": {"auto_search": none},
    }
    call(service, "PUT", f"algorithms/{algorithm_id}", last, 201)
    shown = call(service, "GET", f"algorithms/{algorithm_id}")
    assert has(shown["job_config"], last["job_config"])
    assert (shown["metadata"]["workspace_id"], shown["metadata"]["tags"]) == (workspace, None)
    assert (shown["resource_requirements"], shown["advanced_config"]) == ([], {})


def test_the_domain_of_a_key(service: Service):
    answer = send(service, "GET", "/v3/auth/domains")
    assert answer.status_code == 200
    (domain,) = answer.json()["domains"]
    assert domain["id"]
    assert domain["enabled"] is True
