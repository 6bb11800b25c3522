"""Quotas for the number of jobs."""

import pytest

from tests.dialects.modelarts.driving import Cloud, refused
from tests.running import KEY, Service


def test_there_is_none_until_it_is_set(cloud: Cloud):
    (quota,) = cloud("show_training_quotas", resource="job-num").quotas
    assert (quota.resource, quota.quota) == ("job-num", 2**31 - 1)


@pytest.mark.parametrize("user", ["", KEY.id])
def test_it_is_kept_to(service: Service, user: str):
    cloud = Cloud(service, project=f"quota-{'user' if user else 'project'}")
    body = {"quotas": [{"resource": "job-num", "quota": 1}]} | ({"user_id": user} if user else {})
    assert cloud("modify_training_quotas", body=body).quotas[0].quota == 1
    made = cloud.create("first")
    (quota,) = cloud("show_training_quotas", user_id=user, resource="job-num").quotas
    assert (quota.quota, quota.used) == (1, 1)
    with refused("ModelArts.2815", match="reached its quota of 1"):
        cloud.create("second")
    cloud("delete_training_job", training_job_id=made.metadata.id)
    cloud.create("second")


@pytest.mark.parametrize(
    "quota",
    [
        {"resource": "none", "quota": 1},
        {"resource": "job-num", "quota": 0},
        {"resource": "job-num", "quota": 2**31},
        {"resource": "job-retention-enabled", "quota": 2},
        {"resource": "job-num-quota-notify", "quota": 1},
        {"resource": "job-num"},
        {"quota": 1},
    ],
)
def test_what_cannot_be_a_quota(cloud: Cloud, quota: dict[str, object]):
    with refused("ModelArts.2788", match="quotas"):
        cloud("modify_training_quotas", body={"quotas": [quota]})
