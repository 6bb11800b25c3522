"""Documents that together have every field, through Huawei's own client: sent, answered, sent back."""

import json
import re
import types
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, get_args, get_origin, get_type_hints

import huaweicloudsdkmodelarts.v1 as sdk
import msgspec
import pytest

from tests.dialects.modelarts.driving import Cloud, put
from tests.dialects.modelarts.examples import ALGORITHM, IMAGE, ONE, POOL, POOLED, TASKS, TWO, WHOLE
from tests.running import Service, reachable_directory, running
from turnout.dialects.modelarts import wire

CONFIG = """
[engines.local]
gpus = 1

[pools.{pool}]

[images]
"{image}" = "fastseq"

[datasets.set-1]
url = "obs://data/all/"
versions = {{ v1 = "obs://data/one/" }}

[storage]
host_paths = ["{place}:rw"]
"""
CODE = ("train/demo-code/boot.py", "learner/learn.py", "worker/work.py")
OWN = ("id", "name", "create_time")
DOCUMENTS = {document["metadata"]["name"]: document for document in (ONE, TWO, WHOLE, POOLED, TASKS)}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with (
        reachable_directory() as place,
        running(CONFIG.format(pool=POOL, image=IMAGE, place=place)) as one,
    ):
        one.host_path = str(place)  # type: ignore[attr-defined]
        yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    for path in CODE:
        put(service, f"obs://code/{path}", "")
    for path in ("mnist", "one", "seeds", "experience"):
        put(service, f"obs://data/{path}/x", "")
    put(service, "obs://xxxxxx-rse/test/moxingtest-code/test_obs_gpu.py", "")
    return Cloud(service)


@pytest.fixture(scope="module")
def known(cloud: Cloud) -> dict[str, str]:
    """What is named by ids that the server gives out."""
    experiment = cloud("create_training_experiment", body={"metadata": {"name": "trial"}}).metadata.id
    return {"algorithm": cloud("create_algorithm", body=ALGORITHM).metadata.id, "experiment": experiment}


def document(name: str, service: Service, known: dict[str, str]) -> dict[str, Any]:
    body = deepcopy(DOCUMENTS[name])
    if "id" in body.get("algorithm", {}):
        body["algorithm"]["id"] = known["algorithm"]
    if "training_experiment_reference" in body["metadata"]:
        body["metadata"]["training_experiment_reference"]["id"] = known["experiment"]
    if "host_path" in body.get("spec", {}).get("log_export_path", {}):
        body["spec"]["log_export_path"]["host_path"] = service.host_path  # type: ignore[attr-defined]
    return body


def as_model(value: Any, kind: str) -> Any:
    """Objects of the SDK's own classes; what those do not know stays out."""
    inner = re.fullmatch(r"list\[(\w+)\]", kind)
    if inner and isinstance(value, list):
        return [as_model(one, inner[1]) for one in value]
    model = getattr(sdk, kind, None)
    if model is None or not isinstance(value, dict):
        return value
    fields = {
        own: as_model(value[name], model.openapi_types[own])
        for own, name in model.attribute_map.items()
        if name in value
    }
    return model(**fields)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_it_answers_can_be_sent_back(name: str, service: Service, cloud: Cloud, known: dict[str, str]):
    """From the details and from the list, whole: also what only the server says is in it."""
    made = cloud("create_training_job", body=document(name, service, known)).metadata.id
    shown = json.loads(cloud.details(made).raw_content)
    found = {"filters": [{"key": "id", "operator": "in", "value": [made]}]}
    (listed,) = json.loads(cloud("list_training_jobs", body=found).raw_content)["items"]
    for number, whole in enumerate((shown, listed)):
        whole["metadata"]["name"] = f"{name}-{number}"
        copied = json.loads(cloud("create_training_job", body=whole).raw_content)
        assert without_own(copied) == without_own(whole)


@pytest.mark.parametrize("name", ["whole", "pooled", "hetero", "TestModelArtsJob2"])
def test_the_sdk_s_classes_say_the_same(name: str, service: Service, cloud: Cloud, known: dict[str, str]):
    body = document(name, service, known)
    body["metadata"]["name"] = f"{name}-typed"
    made = json.loads(cloud("create_training_job", body=as_model(body, "Job")).raw_content)
    said = json.loads(cloud("create_training_job", body=renamed(body, f"{name}-plain")).raw_content)
    for answer in (made, said):
        del answer["spec"]["runtime_type"]  # which the SDK's class does not have
    assert without_own(made) == without_own(said)


def test_the_sdk_knows_no_field_that_is_not_known_here():
    assert not list(unknown("Job", wire.Job, ""))
    assert list(unknown("Algorithm", wire.Algorithm, "")) == [".metadata.id"], "which is the server's to say"


def unknown(kind: str, ours: Any, path: str) -> Iterator[str]:
    """The SDK's fields below a class of its, of which our structs know nothing. Plain tables keep all they get."""
    struct = next(
        (one for one in parts(ours) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None
    )
    model = getattr(sdk, kind.removeprefix("list[").removesuffix("]"), None)
    if struct is None or model is None:
        return
    hints = get_type_hints(struct)
    for own, name in model.attribute_map.items():
        if name not in hints:
            yield f"{path}.{name}"
        else:
            yield from unknown(model.openapi_types[own], hints[name], f"{path}.{name}")


def parts(kind: Any) -> Iterator[Any]:
    if isinstance(kind, types.UnionType) or get_origin(kind) in (list, types.UnionType):
        for one in get_args(kind):
            yield from parts(one)
    elif get_origin(kind) is None:
        yield kind


def renamed(body: dict[str, Any], name: str) -> dict[str, Any]:
    return body | {"metadata": body["metadata"] | {"name": name}}


def without_own(whole: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in whole["metadata"].items() if key not in OWN}
    return {key: value for key, value in whole.items() if key != "status"} | {"metadata": metadata}
