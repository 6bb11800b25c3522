"""Lists of engines, flavors and pools: a job can use all that is listed."""

from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, job, put, refused
from tests.running import Service


def test_engines(cloud: Cloud):
    listed = cloud("show_training_job_engines")
    assert listed.total == len(listed.items) > 10
    assert "PyTorch" in {engine.engine_name for engine in listed.items}


def test_flavors(cloud: Cloud):
    listed = cloud("show_training_job_flavors")
    assert listed.total_count == len(listed.flavors) > 2
    assert {flavor.flavor_type for flavor in listed.flavors} == {"CPU", "GPU"}
    assert {one.flavor_type for one in cloud("show_training_job_flavors", flavor_type="CPU").flavors} == {
        "CPU"
    }
    assert cloud("show_training_job_flavors", flavor_type="Ascend").flavors == []
    with refused("ModelArts.2764", match="flavor_type"):
        cloud("show_training_job_flavors", flavor_type="TPU")


def test_every_flavor_that_is_listed_can_be_had(cloud: Cloud):
    for n, flavor in enumerate(cloud("show_training_job_flavors").flavors):
        made = cloud.create(
            f"flavor-{n}", spec={"resource": {"flavor_id": flavor.flavor_id, "node_count": 1}}
        )
        assert made.spec.resource.flavor_detail.flavor_info.cpu.core_num == flavor.flavor_info.cpu.core_num
        cloud("delete_training_job", training_job_id=made.metadata.id)


def test_every_engine_that_is_listed_can_be_had(service: Service, cloud: Cloud):
    put(service, "obs://engine-code/demo/train.py", "print('trained')")
    for n, engine in enumerate(cloud("show_training_job_engines").items):
        run = {"code_dir": "/engine-code/demo/", "boot_file": "/engine-code/demo/train.py"}
        document = job(f"engine-{n}") | {"algorithm": run | {"engine": {"engine_id": engine.engine_id}}}
        made = cloud("create_training_job", body=document)
        assert made.algorithm.engine.engine_name == engine.engine_name
        cloud("delete_training_job", training_job_id=made.metadata.id)


def test_how_much_a_container_can_have(cloud: Cloud):
    flavor = {"flavor_id": "modelarts.vm.cpu.2u"}
    found = cloud("show_training_flavor_max_available_resource", **flavor, pool_id="poolfaf38d76")
    assert (found.cpu_core_num, found.mem_size) == (2, 8)
    with refused("ModelArts.2781"):
        cloud("show_training_flavor_max_available_resource", flavor_id="none", pool_id="poolfaf38d76")
    with refused("ModelArts.2890", 404, "poolfaf38d76"):
        cloud("show_training_flavor_max_available_resource", **flavor, pool_id="none")


def test_pools(cloud: Cloud):
    (pool,) = cloud("list_pools").items
    assert (pool.metadata.name, pool.status.phase, pool.spec.scope) == ("poolfaf38d76", "Running", ["Train"])
    assert "modelarts.pool.visual.xlarge" in pool.spec.job_flavors
    assert cloud("show_pool", pool_name="poolfaf38d76").metadata.name == "poolfaf38d76"
    with refused("ModelArts.2890", 404):
        cloud("show_pool", pool_name="none")


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("show_training_job_route_plan", {}),
        ("show_ft_detail", {}),
        ("show_ft_metrics", {}),
        ("list_ft_artifacts", {}),
        ("publish_ft_artifacts", {"body": {}}),
    ],
)
def test_what_is_not_offered(cloud: Cloud, method: str, fields: dict[str, Any]):
    job_id = cloud.create(method.replace("_", "-")).metadata.id
    with refused("ModelArts.2858"):
        cloud(method, training_job_id=job_id, **fields)
    with refused("ModelArts.2775"):
        cloud(method, training_job_id="none", **fields)


def test_images_cannot_be_saved(cloud: Cloud):
    where = {"training_job_id": cloud.create("keeps-nothing").metadata.id, "task_id": "worker-0"}
    image = {"name": "a", "namespace": "b", "tag": "c"}
    with refused("ModelArts.2879"):
        cloud("create_save_image_job", **where, body=image)
    with refused("ModelArts.2879"):
        cloud("show_save_image_job", **where)


def test_a_program_may_report(cloud: Cloud):
    where = {"training_job_id": cloud.create("reports").metadata.id, "task_id": "worker-0"}
    cloud("notify_training_job_information", **where, report_type="training-event", body={"type": "x"})
    told = cloud("list_training_job_events", training_job_id=where["training_job_id"]).events
    assert any("worker-0 reports x" in event.message for event in told)
    with refused("ModelArts.2788", match="report_type"):
        cloud("notify_training_job_information", **where, report_type="other", body={"type": "x"})
