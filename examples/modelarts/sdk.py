"""A ModelArts training job by Huawei's SDK, with its log."""

import os
import sys
import time
from typing import Any

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.http.http_config import HttpConfig
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    ModelArtsClient,
    ShowTrainingJobDetailsRequest,
    ShowTrainingJobLogsPreviewRequest,
)

id, _, secret = os.environ["TURNOUT_KEY"].partition(":")
client: Any = (
    ModelArtsClient.new_builder()
    .with_http_config(HttpConfig.get_default_config())
    .with_credentials(BasicCredentials(id, secret, "default"))
    .with_endpoint(os.environ["TURNOUT_ENDPOINT"])
    .build()
)
job = {
    "kind": "job",
    "metadata": {"name": f"example-{int(time.time())}"},
    "algorithm": {
        "engine": {"image_url": "any/image:1"},
        "command": "echo rank $VC_TASK_INDEX of $MA_NUM_HOSTS",
    },
    "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 2}},
}
created = client.create_training_job(CreateTrainingJobRequest(body=job)).metadata
print("created", created.name, created.id)

details = ShowTrainingJobDetailsRequest(training_job_id=created.id)
while (phase := client.show_training_job_details(details).status.phase) in ("Creating", "Pending", "Running"):
    time.sleep(0.5)
for task in ("worker-0", "worker-1"):
    log = ShowTrainingJobLogsPreviewRequest(training_job_id=created.id, task_id=task)
    print(task, client.show_training_job_logs_preview(log).content, end="")
print(phase)
sys.exit(phase != "Completed")
