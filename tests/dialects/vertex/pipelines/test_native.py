"""A training pipeline in Turnout's own API."""

from tests.dialects.vertex.driving import Cloud

TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"


def test_a_clone_is_a_pipeline(cloud: Cloud):
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "containerSpec": {"imageUri": "python:3.11", "command": ["true"]},
    }
    document = {
        "displayName": "original",
        "trainingTaskDefinition": TASK,
        "trainingTaskInputs": {"worker_pool_specs": [pool]},
    }
    made = cloud.send("POST", "trainingPipelines", document).body
    assert made["trainingTaskInputs"] == document["trainingTaskInputs"]
    job_id = made["name"].rpartition("/")[2]
    clone = cloud.send("POST", f"/turnout/v1/jobs/{job_id}/clone", {"name": "copy"}).body
    again = cloud.wait(f"{cloud.parent}/trainingPipelines/{clone['id']}", "PIPELINE_STATE_SUCCEEDED")
    assert again["displayName"] == "copy"
    custom_job = f"{cloud.parent}/customJobs/{clone['id']}"
    assert cloud.get(custom_job)["displayName"] == "copy-custom-job"
    found = cloud.send("GET", "customJobs?filter=display_name=copy-custom-job").body
    assert [one["name"] for one in found["customJobs"]] == [custom_job]
    assert "belongs to the training pipeline" in cloud.send("DELETE", f"/v1/{custom_job}").error[2]
