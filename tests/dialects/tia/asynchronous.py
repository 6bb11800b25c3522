"""Run by an interpreter that has Tencent's whole SDK, whose clients may be asynchronous: creates and deletes jobs.

`asynchronous.py HOST:PORT KEY-ID SECRET`; it prints the name of each job that came back as it was sent.
"""

import asyncio
import json
import sys

from tencentcloud.common import credential
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import (
    models,
    tia_client_async,  # pyright: ignore[reportAttributeAccessIssue]
)

FIELDS = {
    "Cluster": "ap-beijing",
    "RuntimeVersion": "tia-1.7.0",
    "ScaleTier": "Custom",
    "MasterType": "1U1G0P",
    "WorkerCount": 2,
    "Command": ["sh"],
    "Args": ["-c", 'sleep 60; echo "$@"', *(f"ü {number} &=" for number in range(12)), ""],
    "Debug": True,
}


async def main(endpoint: str, key_id: str, secret: str) -> None:
    for sign in ("TC3-HMAC-SHA256", "HmacSHA1", "HmacSHA256"):
        for method in ("POST", "GET"):
            for unsigned in (False, True) if sign.startswith("TC3") else (False,):
                http = HttpProfile(protocol="http", endpoint=endpoint, reqMethod=method, reqTimeout=30)
                profile = ClientProfile(signMethod=sign, httpProfile=http, language="en-US")
                profile.unsignedPayload = unsigned
                client = tia_client_async.TiaClient(
                    credential.Credential(key_id, secret), "ap-guangzhou", profile
                )
                await check(client, f"async-{sign}-{method}-{unsigned}".lower())


async def check(client: tia_client_async.TiaClient, name: str) -> None:
    request = models.CreateJobRequest()
    request.from_json_string(json.dumps({"Name": name, **FIELDS}))
    job = (await client.CreateJob(request)).Job
    assert {field: getattr(job, field) for field in FIELDS} == FIELDS
    delete = models.DeleteJobRequest()
    delete.Name, delete.Cluster = name, "ap-beijing"
    await client.DeleteJob(delete)
    print(name)


asyncio.run(main(*sys.argv[1:]))
