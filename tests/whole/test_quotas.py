"""Quotas in the settings: each API refuses with its cloud's own quota error, and `explain` names the quota."""

from collections.abc import Iterator

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.dialects.modelarts import driving as modelarts
from tests.dialects.vertex import driving as vertex
from tests.dialects.vertex import jobs
from tests.running import Service, running

WAITING = "project default already has 1 waiting job and"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running('[projects."*"]\njobs = 1\nwaiting = 1\n') as one:
        one.start()
        one.create("running", "sleep", "600")
        one.create("waiting", "true")
        yield one


def test_the_explanation_names_the_quota(service: Service):
    text = " ".join(service.explain("waiting")["why"])
    assert "The quota of project default is used up: it may use 1 running job at a time" in text


def test_tia(service: Service):
    with pytest.raises(TencentCloudSDKException, match=WAITING) as caught:
        service.create("one-more", "true")
    assert caught.value.code == "ResourceUnavailable"


def test_modelarts(service: Service):
    cloud = modelarts.Cloud(service)
    with modelarts.refused("ModelArts.2815", match=WAITING):
        cloud.create("one-more")


def test_vertex(service: Service):
    cloud = vertex.Cloud(service, project="default")
    answer = cloud.send("POST", "customJobs", jobs.job())
    assert answer.error[:2] == (429, "RESOURCE_EXHAUSTED")
    assert WAITING in answer.error[2]
