"""Algorithms: created, listed, changed, and used by jobs by id."""

import json
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, job, put, refused
from tests.running import Service

ENGINE = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"


@pytest.fixture(scope="module", autouse=True)
def code(service: Service) -> None:
    put(service, "obs://algorithm-code/demo/train.py", "import sys; print(*sys.argv[1:])")
    put(service, "obs://algorithm-code/demo/parts/more.py", "")


def algorithm(name: str, **config: Any) -> dict[str, Any]:
    parameter = {
        "name": "epochs",
        "value": "1",
        "constraint": {
            "type": "Integer",
            "editable": True,
            "required": True,
            "sensitive": False,
            "valid_type": "Range",
            "valid_range": ["1", "10"],
        },
    }
    return {
        "metadata": {"name": name, "description": "for tests"},
        "job_config": {
            "code_dir": "/algorithm-code/demo/",
            "boot_file": "/algorithm-code/demo/train.py",
            "engine": {"engine_id": ENGINE},
            "parameters": [parameter],
            "parameters_customization": True,
        }
        | config,
        "resource_requirements": [{"key": "flavor_type", "values": ["CPU", "GPU"], "operator": "in"}],
    }


def create(cloud: Cloud, name: str, **config: Any) -> str:
    return cloud("create_algorithm", body=algorithm(name, **config)).metadata.id


def test_create_and_show(cloud: Cloud):
    made = cloud("create_algorithm", body=algorithm("shown"))
    shown = cloud("show_algorithm_by_uuid", algorithm_id=made.metadata.id)
    assert (shown.metadata.name, shown.metadata.description, shown.metadata.is_valid) == (
        "shown",
        "for tests",
        True,
    )
    assert shown.metadata.create_time > 1_600_000_000_000
    assert shown.metadata.size > 0
    assert shown.job_config.engine.engine_id == ENGINE
    assert [child.name for child in shown.job_config.code_tree.children] == ["parts/", "train.py"]
    assert shown.job_config.parameters[0].constraint.valid_range == ["1", "10"]
    assert shown.resource_requirements[0].value == ["CPU", "GPU"]


def test_list_searched_sorted_and_in_pages(cloud: Cloud):
    for name in ("find-b", "find-a", "find-c"):
        create(cloud, name)
    where = {"searches": "name:find-", "sort_by": "name", "order": "asc", "limit": 2}
    pages = [cloud("list_algorithms", **where, offset=n) for n in (0, 1)]
    names = [item.metadata.name for page in pages for item in page.items]
    assert names == ["find-a", "find-b", "find-c"]
    assert (pages[0].total, pages[0].count, pages[1].count) == (3, 2, 1)
    with refused("ModelArts.2790", match="sort_by"):
        cloud("list_algorithms", sort_by="size")
    with refused("ModelArts.2764", match="searches"):
        cloud("list_algorithms", searches="nonsense")
    with refused("ModelArts.2764", match="limit"):
        cloud("list_algorithms", limit=51)


def test_change_and_delete(cloud: Cloud):
    algorithm_id = create(cloud, "before")
    changed = cloud("change_algorithm", algorithm_id=algorithm_id, body=algorithm("after", parameters=[]))
    assert (changed.metadata.id, changed.metadata.name, changed.job_config.parameters) == (
        algorithm_id,
        "after",
        [],
    )
    assert changed.metadata.update_time > 0
    cloud("delete_algorithm", algorithm_id=algorithm_id)
    with refused("ModelArts.2755", match="algorithm not found."):
        cloud("show_algorithm_by_uuid", algorithm_id=algorithm_id)


def test_the_answers_have_the_documented_status(cloud: Cloud):
    made = cloud("create_algorithm", body=algorithm("statuses"))
    where = {"algorithm_id": made.metadata.id}
    changed = cloud("change_algorithm", **where, body=algorithm("statuses"))
    gone = cloud("delete_algorithm", **where)
    assert (made.status_code, changed.status_code, gone.status_code) == (201, 201, 202)
    assert gone.raw_content == b"null"


def test_a_name_that_is_taken(cloud: Cloud):
    create(cloud, "taken")
    other = create(cloud, "not-taken")
    with refused("ModelArts.2821", match="taken"):
        create(cloud, "taken")
    with refused("ModelArts.2821", match="taken"):
        cloud("change_algorithm", algorithm_id=other, body=algorithm("taken"))


def test_what_it_gives_can_be_given_back(cloud: Cloud):
    made = cloud("create_algorithm", body=algorithm("original"))
    body = json.loads(made.raw_content)
    body["metadata"]["name"] = "copy"
    assert cloud("create_algorithm", body=body).job_config.to_dict() == made.job_config.to_dict()


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (
            {"code_dir": "/algorithm-code/nothing/", "boot_file": "/algorithm-code/nothing/a.py"},
            "ModelArts.2757",
        ),
        ({"code_dir": "/no-such-bucket/a/", "boot_file": "/no-such-bucket/a/a.py"}, "ModelArts.2757"),
        ({"boot_file": "/algorithm-code/demo/none.py"}, "ModelArts.2758"),
        ({"boot_file": "/elsewhere/train.py"}, "ModelArts.2792"),
        ({"engine": {"engine_id": "none"}}, "ModelArts.2780"),
    ],
)
def test_what_cannot_be_an_algorithm(cloud: Cloud, config: dict[str, Any], code: str):
    with refused(code):
        create(cloud, "never", **config)
    assert cloud("list_algorithms", searches="name:never").total == 0


def test_code_that_is_too_much(service: Service, cloud: Cloud):
    put(service, f"obs://algorithm-code/deep/{'a/' * 33}train.py", "")
    with refused("ModelArts.2760", match="33 directories deep"):
        create(
            cloud,
            "deep",
            code_dir="/algorithm-code/deep/",
            boot_file=f"/algorithm-code/deep/{'a/' * 33}train.py",
        )


def test_a_job_by_id(service: Service, cloud: Cloud):
    algorithm_id = create(cloud, "used")
    document = job("uses", metadata={}, algorithm={})
    document["algorithm"] = {"id": algorithm_id, "parameters": [{"name": "epochs", "value": "3"}]}
    made = cloud("create_training_job", body=document)
    assert made.algorithm.name == "used"
    assert made.algorithm.engine.engine_id == ENGINE
    (parameter,) = made.algorithm.parameters
    assert (parameter.value, parameter.constraint.type) == ("3", "Integer")
    assert service.wait("uses")["state"] == "succeeded"


def test_a_job_by_an_id_that_is_not_there(cloud: Cloud):
    document = job("orphan")
    document["algorithm"] = {"id": "3f5d6706-7b67-408d-8ba0-ec08048c45ee"}
    with refused("ModelArts.2755", match="algorithm not found."):
        cloud("create_training_job", body=document)
