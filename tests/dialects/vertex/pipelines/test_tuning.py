"""A pipeline with a tuning task is a search. Its model is that of the best trial."""

from typing import Any

from tests.dialects.vertex.driving import Cloud

TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/hyperparameter_tuning_task_1.0.0.yaml"
SCRIPT = (
    'd="/gcs/${AIP_MODEL_DIR#gs://}"; mkdir -p "$d"; echo "$0" > "$d/model"; '
    'echo "{\\"metric\\": \\"x\\"}"; '
    "mkdir -p /var/hypertune; v=${0#--x=}; "
    'echo "{\\"timestamp\\": 1, \\"trial\\": \\"1\\", \\"x\\": \\"$v\\", \\"global_step\\": \\"1\\"}" '
    "> $CLOUD_ML_HP_METRIC_FILE"
)


def test_the_model_of_the_best_trial(cloud: Cloud):
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "containerSpec": {"imageUri": "python:3.11", "command": ["/bin/sh", "-c", SCRIPT]},
    }
    inputs: dict[str, Any] = {
        "studySpec": {
            "metrics": [{"metricId": "x", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "x", "discreteValueSpec": {"values": [1, 2]}}],
            "algorithm": "GRID_SEARCH",
        },
        "trialJobSpec": {
            "workerPoolSpecs": [pool],
            "baseOutputDirectory": {"outputUriPrefix": "gs://tuned-pipelines/out"},
        },
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
    }
    pipeline = {
        "displayName": "tuned",
        "trainingTaskDefinition": TASK,
        "trainingTaskInputs": inputs,
        "modelToUpload": {"displayName": "best"},
    }
    made = cloud.send("POST", "trainingPipelines", pipeline).body
    backing = made["trainingTaskMetadata"]["backingHyperparameterTuningJob"]
    ended = cloud.wait(made["name"], "PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_FAILED")
    assert ended["state"] == "PIPELINE_STATE_SUCCEEDED", ended
    trials = cloud.get(backing)["trials"]
    (best,) = [one["id"] for one in trials if one["parameters"][0]["value"] == 2]
    model = cloud.get(ended["modelToUpload"]["name"])
    assert model["artifactUri"] == f"gs://tuned-pipelines/out/{best}/model"
