"""Experiments and their jobs."""

import pytest

from tests.dialects.modelarts.driving import Cloud, refused


def test_create_show_change_list_delete(cloud: Cloud):
    made = cloud("create_training_experiment", body={"metadata": {"name": "first", "description": "d"}})
    assert (made.metadata.name, made.metadata.workspace_id, made.statistic.job_count) == ("first", "0", 0)
    where = {"experiment_id": made.metadata.id}
    changed = cloud("change_training_experiment", **where, body={"name": "renamed"})
    assert (changed.name, changed.description) == ("renamed", "d")
    shown = cloud("show_training_experiment_details", **where)
    assert (shown.metadata.id, shown.metadata.name) == (made.metadata.id, "renamed")
    assert cloud("check_training_experiment", experiment_name="renamed").is_duplicate is True
    assert cloud("check_training_experiment", experiment_name="first").is_duplicate is False
    cloud("delete_training_experiment", **where)
    with refused("ModelArts.2842"):
        cloud("show_training_experiment_details", **where)


def test_list_in_pages(cloud: Cloud):
    for name in ("list-c", "list-a", "list-b"):
        cloud("create_training_experiment", body={"metadata": {"name": name}})
    pages = [
        cloud("list_training_experiments", limit=1, offset=n, sort_by="name", order="asc") for n in range(9)
    ]
    names = [item.metadata.name for page in pages for item in page.items]
    assert [name for name in names if name.startswith("list-")] == ["list-a", "list-b", "list-c"]
    assert pages[0].total == len(names)


def test_a_name_that_is_taken(cloud: Cloud):
    cloud("create_training_experiment", body={"metadata": {"name": "taken"}})
    with refused("ModelArts.2841"):
        cloud("create_training_experiment", body={"metadata": {"name": "taken"}})


@pytest.mark.parametrize("name", ["", "x" * 65, "a b"])
def test_names_that_cannot_be(cloud: Cloud, name: str):
    with refused("ModelArts.2788", match="metadata.name"):
        cloud("create_training_experiment", body={"metadata": {"name": name}})


def test_jobs_join_by_id_and_by_name(cloud: Cloud):
    made = cloud("create_training_experiment", body={"metadata": {"name": "gathering"}})
    for n, reference in enumerate(
        ({"id": made.metadata.id}, {"name": "gathering"}, {"name": "made-by-a-job"})
    ):
        job = cloud.create(f"joins-{n}", metadata={"training_experiment_reference": reference})
        shown = cloud.details(job.metadata.id).metadata.training_experiment_reference
        assert shown.id
    where = {"experiment_id": made.metadata.id}
    assert cloud("show_training_experiment_details", **where).statistic.job_count == 2
    assert cloud("check_training_experiment", experiment_name="made-by-a-job").is_duplicate is True


def test_a_job_that_is_refused_makes_no_experiment(cloud: Cloud):
    reference = {"training_experiment_reference": {"name": "never-made"}}
    with refused("ModelArts.2815"):
        resource = {"flavor_id": "modelarts.p3.large.public", "node_count": 2}
        cloud.create("too-large", metadata=reference, spec={"resource": resource})
    assert cloud("check_training_experiment", experiment_name="never-made").is_duplicate is False


def test_a_job_cannot_join_what_is_not_there(cloud: Cloud):
    with refused("ModelArts.2842"):
        cloud.create("lonely", metadata={"training_experiment_reference": {"id": "none"}})
