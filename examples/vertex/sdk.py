"""A Vertex AI custom job by Google's SDK."""

import os
import subprocess
import sys

from google.cloud import aiplatform
from google.oauth2.credentials import Credentials

token = subprocess.run(["turnout", "token"], capture_output=True, text=True, check=True).stdout.strip()
aiplatform.init(
    api_endpoint=os.environ["TURNOUT_ENDPOINT"],
    api_transport="rest",
    project="default",
    location="us-central1",
    staging_bucket="gs://stage",
    credentials=Credentials(token=token),
)
pool = {
    "machine_spec": {"machine_type": "n4-highcpu-2"},
    "replica_count": 1,
    "container_spec": {
        "image_uri": "python:3.11",
        "command": ["sh", "-c", "echo hello from $CLOUD_ML_JOB_ID"],
    },
}
job = aiplatform.CustomJob("example", [pool])
job.run()
print(job.resource_name, job.state.name)
subprocess.run(["turnout", "logs", job.resource_name.rpartition("/")[2]], check=True)
sys.exit(job.state.name != "JOB_STATE_SUCCEEDED")
