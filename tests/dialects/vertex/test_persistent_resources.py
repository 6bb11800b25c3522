"""Persistent resources are names of clusters."""

import time
from typing import Any

import pytest
from google.api_core.exceptions import Conflict
from google.cloud import aiplatform_v1
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.driving import Cloud
from tests.dialects.vertex.test_sdk import pools
from tests.running import KEY
from turnout.access import make_token


def test_a_job_runs_on_one_that_was_created(cloud: Cloud):
    client: Any = aiplatform_v1.PersistentResourceServiceClient(
        transport="rest",
        credentials=Credentials(token=make_token(KEY, time.time())),
        client_options={"api_endpoint": cloud.service.endpoint},
    )
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1}
    given = {"parent": cloud.parent, "persistent_resource_id": "mine"} | {
        "persistent_resource": {"display_name": "my machines", "resource_pools": [pool]}
    }
    made = client.create_persistent_resource(request=given).result()
    assert (made.name, made.state.name) == (f"{cloud.parent}/persistentResources/mine", "RUNNING")
    with pytest.raises(Conflict):
        client.create_persistent_resource(request=given)
    assert client.get_persistent_resource(name=made.name).display_name == "my machines"
    assert made.name in [one.name for one in client.list_persistent_resources(parent=cloud.parent)]
    job = {
        "displayName": "on it",
        "jobSpec": {"workerPoolSpecs": pools("true"), "persistentResourceId": "mine"},
    }
    created = cloud.send("POST", "customJobs", job).body
    assert cloud.wait(created["name"])["state"] == "JOB_STATE_SUCCEEDED"
    client.delete_persistent_resource(name=made.name).result()
    assert cloud.send("POST", "customJobs", job).error[:2] == (404, "NOT_FOUND")
