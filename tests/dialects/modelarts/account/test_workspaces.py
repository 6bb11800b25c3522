"""Workspaces: their job names, and who can use them."""

import pytest

from tests.dialects.modelarts.driving import Cloud, refused


@pytest.fixture
def workspace(cloud: Cloud, request: pytest.FixtureRequest) -> str:
    name = f"room_{request.node.name[:40]}"
    return cloud("create_workspace", body={"name": name, "description": "for a test"}).id


def test_the_default_one_is_always_there(cloud: Cloud):
    shown = cloud("show_workspace", workspace_id="0")
    assert (shown.id, shown.name, shown.auth_type, shown.status) == ("0", "default", "PUBLIC", "NORMAL")


def test_create_show_change_list_delete(cloud: Cloud):
    made = cloud("create_workspace", body={"name": "研发_room", "auth_type": "PRIVATE"})
    assert len(made.id) == 32
    assert (made.name, made.auth_type, made.description) == ("研发_room", "PRIVATE", "")
    changed = cloud(
        "update_workspace", workspace_id=made.id, body={"name": "other-room", "description": "new"}
    )
    assert changed.workspace_id == made.id
    shown = cloud("show_workspace", workspace_id=made.id)
    assert (shown.name, shown.description, shown.auth_type) == ("other-room", "new", "PRIVATE")
    assert shown.update_time >= shown.create_time > 1_600_000_000_000
    listed = cloud("list_workspace", name="ther-roo")
    assert [(one.id, one.name) for one in listed.workspaces] == [(made.id, "other-room")]
    assert cloud("delete_workspace", workspace_id=made.id).workspace_id == made.id
    with refused("ModelArts.0102", match="does not exist"):
        cloud("show_workspace", workspace_id=made.id)


def test_list_in_pages(cloud: Cloud):
    for name in ("paged-a", "paged-b", "paged-c"):
        cloud("create_workspace", body={"name": name})
    first = cloud("list_workspace", name="paged-", limit=2, order="asc")
    second = cloud("list_workspace", name="paged-", limit=2, offset=1, order="asc")
    assert [one.name for one in first.workspaces + second.workspaces] == ["paged-a", "paged-b", "paged-c"]
    assert (first.total_count, first.count, second.count) == (3, 2, 1)


@pytest.mark.parametrize("name", ["abc", "x" * 65, "no spaces", "", "naïve!"])
def test_names_that_cannot_be(cloud: Cloud, name: str):
    with refused("ModelArts.2788", match="name"):
        cloud("create_workspace", body={"name": name})


@pytest.mark.parametrize("name", ["default", "taken_room"])
def test_names_that_are_taken(cloud: Cloud, name: str):
    if name != "default":
        cloud("create_workspace", body={"name": name})
    with refused("ModelArts.0107", match=name):
        cloud("create_workspace", body={"name": name})


def test_the_default_one_stays_as_it_is(cloud: Cloud):
    with refused("ModelArts.2788"):
        cloud("delete_workspace", workspace_id="0")


def test_jobs_have_names_of_their_own_in_it(cloud: Cloud, workspace: str):
    cloud.create("same-name")
    made = cloud.create("same-name", metadata={"workspace_id": workspace})
    assert made.metadata.workspace_id == workspace
    with refused("ModelArts.2751"):
        cloud.create("same-name", metadata={"workspace_id": workspace})
    with refused("ModelArts.2891", 400, "1 training jobs"):
        cloud("delete_workspace", workspace_id=workspace)


def test_a_workspace_that_is_not_there(cloud: Cloud):
    with refused("ModelArts.0102"):
        cloud.create("homeless", metadata={"workspace_id": "nowhere"})


def test_a_quota_is_kept_to(cloud: Cloud, workspace: str):
    (quota,) = cloud("show_workspace_quotas", workspace_id=workspace).quotas
    assert (quota.resource, quota.quota, quota.used_quota) == ("job-num", -1, None)
    cloud(
        "update_workspace_quotas",
        workspace_id=workspace,
        body={"quotas": [{"resource": "job-num", "quota": 1}]},
    )
    cloud.create("only-one", metadata={"workspace_id": workspace})
    (quota,) = cloud("show_workspace_quotas", workspace_id=workspace).quotas
    assert (quota.quota, quota.used_quota) == (1, 1)
    with refused("ModelArts.2815", match="reached its quota of 1"):
        cloud.create("one-more", metadata={"workspace_id": workspace})
