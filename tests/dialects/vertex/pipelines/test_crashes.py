"""A service that is killed between the end of a pipeline's job and its model makes the model once."""

from typing import Any

import pytest

from tests.dialects.vertex.driving import Cloud
from tests.running import Service, running

TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
SCRIPT = 'mkdir -p "/gcs/${AIP_MODEL_DIR#gs://}" && echo w > "/gcs/${AIP_MODEL_DIR#gs://}m"'


def pipeline(parent: str = "") -> Any:
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "containerSpec": {"imageUri": "python:3.11", "command": ["/bin/sh", "-c", SCRIPT]},
    }
    return {
        "displayName": "killed",
        "trainingTaskDefinition": TASK,
        "trainingTaskInputs": {
            "workerPoolSpecs": [pool],
            "baseOutputDirectory": {"outputUriPrefix": "gs://killed/out"},
        },
        "modelToUpload": {"displayName": "survivor"},
    } | ({"parentModel": parent} if parent else {})


def conclude(cloud: Cloud, name: str) -> Any:
    return cloud.wait(name, "PIPELINE_STATE_SUCCEEDED")


@pytest.mark.parametrize("point", ["pipeline.job_ended", "pipeline.model_made"])
def test_the_model_is_made_once(point: str):
    with running() as one:
        service: Service = one.start(TURNOUT_KILL_AT=point)
        cloud = Cloud(service)
        name = cloud.send("POST", "trainingPipelines", pipeline()).body["name"]
        service.wait_for_death()
        service.start()
        model = conclude(cloud, name)["modelToUpload"]
        assert [one["name"] for one in cloud.send("GET", "models").body["models"]] == [model["name"]]
        service.kill()
        service.start(TURNOUT_KILL_AT=point)
        second = cloud.send("POST", "trainingPipelines", pipeline(model["name"])).body["name"]
        service.wait_for_death()
        service.start()
        conclude(cloud, second)
        versions = cloud.send("GET", f"/v1/{model['name']}:listVersions").body["models"]
        assert [one["versionId"] for one in versions] == ["2", "1"]
