"""Real training on a real Slurm."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import get
from tests.engines.training import ENGINE, RUNTIMES, SECONDS, Lab, RealTraining, resource
from tests.running import running
from tests.slurm.daemons import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "ap-shanghai"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "slurm"
python = "/usr/bin/python3"

[pools.pool-slurm]
cluster = "{CLUSTER}"
{RUNTIMES}"""


@pytest.fixture(scope="module")
def lab(slurm: Slurm) -> Iterator[Lab]:
    with running(env={"SLURM_CONF": slurm.environment["SLURM_CONF"]}) as one:
        one.config.write_text(f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{one.port}"\n')
        one.start("--host", "0.0.0.0")
        addresses = frozenset({slurm.near, slurm.far})
        # Two nodes have two GPUs each, and one of them has a network address of its own.
        yield Lab(
            one, CLUSTER, "pool-slurm", tia="2U3G0P", vertex="n1-standard-4", gpus=2, addresses=addresses
        )


class TestSlurm(RealTraining):
    def test_tasks_of_different_kinds_are_one_gang(self, lab: Lab):
        tasks: list[dict[str, Any]] = []
        for role in ("learner", "actor"):
            write = f"open(os.environ['out'] + '/' + os.environ['MA_TASK_NAME'], 'w').write('{role}')"
            show = "print(os.environ['VC_LEARNER_HOSTS'], os.environ['VC_ACTOR_HOSTS'])"
            lab.service.put(f"obs://programs/{role}/run.py", f"import os\n{write}\n{show}\n")
            output = {
                "name": "out",
                "access_method": "env",
                "remote": {"obs": {"obs_url": f"/tasks/{role}/"}},
            }
            algorithm = {
                "code_dir": f"/programs/{role}/",
                "boot_file": f"/programs/{role}/run.py",
                "engine": {"engine_id": ENGINE},
                "outputs": [output],
            }
            tasks.append(
                {
                    "role": role,
                    "algorithm": algorithm,
                    "task_resource": resource(lab._replace(memory=1, gpus=0), 1),
                }
            )
        huawei = Huawei(lab.service)
        metadata = {"name": "tasks", "annotations": {"job_template": "Template RL"}}
        made = huawei("create_training_job", body={"kind": "job", "metadata": metadata, "tasks": tasks})
        assert made.status.tasks == ["learner-0", "actor-0"]
        job = lab.service.wait("tasks", timeout=SECONDS)
        said = huawei.log(made.metadata.id, "learner-0")
        assert job["state"] == "succeeded", (job["message"], said)
        assert re.search(r"\S*learner-0\S* \S*actor-0", said), said
        for role in ("learner", "actor"):
            assert get(lab.service, f"obs://tasks/{role}/{role}") == role
