"""The tfplus example of the documentation, unchanged: three workers with two GPUs each."""

import os
import subprocess
import sys
from pathlib import Path

from tests.running import KEY, Service, python_path, reachable_directory, running

EXAMPLE = r"""tictl job create test73 \
  --cluster=cls-rgaisoe4 \
  --region=ap-guangzhou \
  --command="python /scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py \
            --model resnet50 \
            --batch_size 32 \
            --variable_update tfplus" \
  --runtime=tfplus-1.6.0-gpu \
  --wcount=3 \
  --workertype=0U0G2P
"""

SETTINGS = """
[engines.local]
gpus = 6
[clusters.cls-rgaisoe4]
engine = "local"
"""

BENCHMARK = """
import json, os, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"], task["index"], os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:])
"""


def paste(service: Service, command: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Runs it in a shell that has tictl on its PATH."""
    tictl = directory / "tictl"
    tictl.write_text(f'#!/bin/sh\nexec {sys.executable} -m turnout.cli.tictl "$@"\n')
    tictl.chmod(0o755)
    env = os.environ | {
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "XDG_CONFIG_HOME": str(directory),
    }
    return subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=60)


def test_it_runs_and_fails_because_the_script_does_not_exist() -> None:
    with running(SETTINGS) as service, reachable_directory() as directory:
        service.start()
        result = paste(service, EXAMPLE, directory)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("create job success.")
        job = service.wait("test73")
        assert {r["name"]: len(r["gpus"].split(",")) for r in job["replicas"]} == {
            "worker-0": 2,
            "worker-1": 2,
            "worker-2": 2,
        }
        assert job["state"] == "failed"
        assert any("can't open file" in log.Log for log in service.logs("test73", "cls-rgaisoe4"))


def test_it_succeeds_if_the_settings_mount_the_scripts() -> None:
    with reachable_directory() as directory:
        script = directory / "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
        script.parent.mkdir(parents=True)
        script.write_text(BENCHMARK)
        mounts = f'[runtimes."tfplus-1.6.0-gpu"]\nmounts = {{ "/scripts" = "{directory}/scripts" }}\n'
        with running(SETTINGS + mounts) as service:
            service.start()
            assert paste(service, EXAMPLE, directory).returncode == 0
            assert service.wait("test73")["state"] == "succeeded"
            arguments = "--model resnet50 --batch_size 32 --variable_update tfplus"
            lines = sorted(log.Log for log in service.logs("test73", "cls-rgaisoe4"))
            assert [line.replace(arguments, "").split()[:2] for line in lines] == [
                ["worker", "0"],
                ["worker", "1"],
                ["worker", "2"],
            ]
            devices = [device for line in lines for device in line.split()[2].split(",")]
            assert sorted(devices) == list("012345")
