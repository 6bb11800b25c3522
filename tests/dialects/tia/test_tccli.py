"""Tencent's command line, as a user would call it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import KEY, Service


@pytest.fixture
def tccli(service: Service, tmp_path: Path):
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "TENCENTCLOUD_SECRET_ID": KEY.id,
            "TENCENTCLOUD_SECRET_KEY": KEY.secret,
            "TENCENTCLOUD_REGION": "ap-beijing",
        }
        command = [
            str(Path(sys.executable).with_name("tccli")),
            "tia",
            *arguments,
            "--endpoint",
            service.endpoint,
        ]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


WHERE = ("--Name", "by-tccli", "--Cluster", "ap-beijing")


def test_a_job_from_beginning_to_end(tccli: Any):
    program = ("--Command", '["echo"]', "--Args", '["--lr=0.1", "ü"]', "--Debug", "True")
    created = answer(tccli("CreateJob", *WHERE, "--RuntimeVersion", "tia-1.7.0", *program))["Job"]
    assert (created["Message"], created["Args"], created["Debug"]) == ("creating", ["--lr=0.1", "ü"], True)
    waiter = "{'expr':'Job.State','to':'Succeeded','timeout':30,'interval':1}"
    assert answer(tccli("DescribeJob", *WHERE, "--waiter", waiter))["Job"]["State"] == "Succeeded"
    times = ("--StartTime", "2018-01-01 00:00:00", "--EndTime", "2099-01-01 00:00:00", "--Limit", "10")
    logs = answer(tccli("QueryLogs", "--JobName", "by-tccli", "--Cluster", "ap-beijing", *times))
    assert [line["Log"] for line in logs["Logs"]] == ["--lr=0.1 ü"]
    names = answer(tccli("ListJobs", "--Cluster", "ap-beijing", "--filter", "Jobs[].Name"))
    assert "by-tccli" in names
    assert list(answer(tccli("DeleteJob", *WHERE))) == ["RequestId"]


def test_an_error(tccli: Any):
    done = tccli("DescribeJob", "--Name", "nobody", "--Cluster", "ap-beijing")
    assert done.returncode == 255
    assert "code:ResourceNotFound" in done.stderr + done.stdout
