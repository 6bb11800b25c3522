"""Without auth: the documentation's own example, unsigned, as one would type it."""

from collections.abc import Iterator

import pytest

from tests.dialects.tia.raw import send
from tests.running import Service, running


@pytest.fixture(scope="module")
def open_service() -> Iterator[Service]:
    with running() as one:
        yield one.start("--no-auth")


def test_the_example_of_create_job(open_service: Service):
    sent = {
        "Name": "test-job",
        "Cluster": "ap-beijing",
        "RuntimeVersion": "tia-1.7.0",
        "ScaleTier": "Custom",
        "MasterType": "1U1G0P",
        "WorkerType": "1U1G0P",
        "ParameterServerType": "1U1G0P",
        "WorkerCount": 2,
        "ParameterServerCount": 1,
        "Command": ["sleep"],
        "Args": ["60"],
    }
    reply = send(
        open_service,
        "GET",
        "/?Action=CreateJob&Name=test-job&Cluster=ap-beijing&RuntimeVersion=tia-1.7.0&ScaleTier=Custom"
        "&MasterType=1U1G0P&WorkerType=1U1G0P&ParameterServerType=1U1G0P&WorkerCount=2&ParameterServerCount=1"
        "&Command.0=sleep&Args.0=60&Version=2018-02-26&Region=ap-beijing",
    )
    job = reply.body["Job"]
    assert job.pop("CreateTime")
    assert job == sent | {"Message": "creating"}


def test_errors_are_the_same(open_service: Service):
    assert send(open_service, "GET", "/?Version=2018-02-26").code == "MissingParameter"
    assert send(open_service, "GET", "/?Action=Nothing").code == "InvalidAction"
