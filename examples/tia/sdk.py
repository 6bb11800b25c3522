"""A TI-A job by Tencent's SDK: one master and two workers, which print what each of them is."""

import os
import sys
import time
from typing import Any

from tencentcloud.common import credential
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import models, tia_client

scheme, _, host = os.environ["TURNOUT_ENDPOINT"].partition("://")
id, _, secret = os.environ["TURNOUT_KEY"].partition(":")
profile = ClientProfile(httpProfile=HttpProfile(protocol=scheme, endpoint=host))
client: Any = tia_client.TiaClient(credential.Credential(id, secret), "ap-beijing", profile)

name = f"example-{int(time.time())}"
create: Any = models.CreateJobRequest()
create.Name, create.Cluster, create.RuntimeVersion = name, "ap-beijing", "tia-1.7.0"
create.ScaleTier, create.MasterType, create.WorkerType, create.WorkerCount = "CUSTOM", "1U1G0P", "1U1G0P", 2
create.Command = ["sh", "-c", 'echo "$HOSTNAME: rank $RANK of $WORLD_SIZE"']
created = client.CreateJob(create).Job
print("created", created.Name)

describe = models.DescribeJobRequest()
describe.Name, describe.Cluster = name, "ap-beijing"
while (job := client.DescribeJob(describe).Job).State not in ("Succeeded", "Failed"):
    time.sleep(0.5)

logs = models.QueryLogsRequest()
logs.JobName, logs.Cluster, logs.Limit = name, "ap-beijing", 100
logs.StartTime, logs.EndTime = job.CreateTime[:19], "2099-01-01 00:00:00"
for line in client.QueryLogs(logs).Logs:
    print(line.Log)
print(job.State)
sys.exit(job.State != "Succeeded")
