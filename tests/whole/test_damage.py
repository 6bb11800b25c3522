"""A service whose database has damaged rows starts, shows the others, and names what it could not read."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.tia.v20180226 import models

from tests.running import running


def test_damaged_rows_are_set_aside_and_named() -> None:
    with running('[engines.local]\nsandbox = "none"\n') as service:
        service.start()
        for name in ("good", "bad", "worse"):
            service.create(name, "true")
            service.wait(name)
        service.terminate()
        with closing(sqlite3.connect(service.data / "turnout.db")) as database:
            for name, column in (("bad", "document"), ("worse", "spec")):
                ids = "(SELECT id FROM jobs WHERE name = ?)"
                database.execute(f"UPDATE documents SET {column} = ? WHERE job IN {ids}", (b'{"x', name))
            database.commit()
        service.start()
        request = models.ListJobsRequest()
        request.Cluster = "ap-beijing"
        assert sorted(job.Name for job in service.sdk().ListJobs(request).Jobs or []) == ["good", "worse"]
        with pytest.raises(TencentCloudSDKException, match=r"the document of job [0-9]+ cannot be read"):
            service.describe("bad")
        service.create("next", "true")
        assert service.wait("next")["state"] == "succeeded"
        told = subprocess.run(
            [
                sys.executable,
                "-m",
                "turnout.cli.main",
                "doctor",
                "--data",
                str(service.data),
                "--output",
                "json",
            ],
            capture_output=True,
            text=True,
        )
        assert told.stdout, told.stderr
        records = json.loads(told.stdout)["records"]
        assert records["status"] == "warn"
        assert "1 unreadable rows were set aside" in records["found"]
        assert "the document of job" in records["found"]
