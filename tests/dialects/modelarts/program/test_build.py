"""What the program of a job gets, through Huawei's own client in a real service."""

from typing import Any

from tests.dialects.modelarts.driving import Cloud, get, put
from tests.running import Service

ENGINE = {"engine_id": "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"}
CPU = {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 1}

COPY = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--data_url")
parser.add_argument("--train_url")
parser.add_argument("--epochs", type=int)
args, others = parser.parse_known_args()
text = pathlib.Path(args.data_url, "in.txt").read_text()
more = pathlib.Path(os.environ["extra"], "in.txt").read_text()
pathlib.Path(args.train_url, "out.txt").write_text(f"{text} {more} {args.epochs} {os.environ['LEVEL']}")
print("at", os.getcwd(), others)
"""


def test_code_channels_parameters_and_the_log(service: Service, cloud: Cloud):
    put(service, "obs://doc-code/copy/copy.py", COPY)
    put(service, "obs://doc-data/one/in.txt", "hello")
    put(service, "obs://doc-data/two/in.txt", "world")
    body: dict[str, Any] = {
        "kind": "job",
        "metadata": {"name": "doc-copy"},
        "algorithm": {
            "code_dir": "/doc-code/copy/",
            "boot_file": "obs://doc-code/copy/copy.py",
            "engine": ENGINE,
            "parameters": [{"name": "epochs", "value": "3", "constraint": {"type": "Integer"}}],
            "inputs": [
                {"name": "data_url", "remote": {"obs": {"obs_url": "/doc-data/one/"}}},
                {"name": "extra", "access_method": "env", "remote": {"obs": {"obs_url": "/doc-data/two/"}}},
            ],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "obs://doc-out/model/"}}}],
            "environments": {"LEVEL": "7"},
        },
        "spec": {"resource": CPU, "log_export_path": {"obs_url": "/doc-logs/all/"}},
    }
    made = cloud("create_training_job", body=body)
    assert made.algorithm.inputs[0].local_dir == "/home/ma-user/modelarts/inputs/data_url_0"
    assert service.wait("doc-copy")["state"] == "succeeded"
    assert get(service, "obs://doc-out/model/out.txt") == "hello world 3 7"
    log = get(service, f"obs://doc-logs/all/modelarts-job-{made.metadata.id}-worker-0.log")
    assert "at /home/ma-user/modelarts/user-job-dir/copy []" in log
    status = cloud.details(made.metadata.id).status
    assert (status.phase, status.task_statuses[0].exit_code) == ("Completed", 0)
    assert status.running_records[0].end_reason == "job completed"


def test_tasks_of_different_kinds_are_one_gang(service: Service, cloud: Cloud):
    for role in ("learner", "worker"):
        write = f"open('/home/ma-user/out-{role}/' + os.environ['MA_TASK_NAME'], 'w').write('{role}')"
        put(service, f"obs://doc-code/{role}/run.py", f"import os\n{write}")
    tasks = [
        {
            "role": role,
            "algorithm": {
                "code_dir": f"/doc-code/{role}/",
                "boot_file": f"/doc-code/{role}/run.py",
                "engine": ENGINE,
                "outputs": [
                    {
                        "name": "out",
                        "local_dir": f"/home/ma-user/out-{role}",
                        "remote": {"obs": {"obs_url": f"/doc-tasks/{role}/"}},
                    }
                ],
            },
            "task_resource": CPU,
        }
        for role in ("learner", "worker")
    ]
    template = {"name": "doc-tasks", "annotations": {"job_template": "Template RL"}}
    made = cloud("create_training_job", body={"kind": "job", "metadata": template, "tasks": tasks})
    assert made.status.tasks == ["learner-0", "worker-0"]
    assert made.tasks[0].algorithm.outputs.mode == "upload_periodically"
    assert made.tasks[1].task_resource.flavor_info.cpu.core_num == 8
    assert service.wait("doc-tasks")["state"] == "succeeded"
    assert get(service, "obs://doc-tasks/learner/learner") == "learner"
    assert get(service, "obs://doc-tasks/worker/worker") == "worker"


def test_a_failure_is_explained(service: Service, cloud: Cloud):
    made = cloud.create("doc-killed", "kill -9 $$")
    assert service.wait("doc-killed")["state"] == "failed"
    (task,) = cloud.details(made.metadata.id).status.task_statuses
    assert (task.task, task.exit_code) == ("worker-0", 137)
    assert "memory" in task.message
