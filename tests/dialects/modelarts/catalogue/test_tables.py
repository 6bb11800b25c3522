"""The engines and flavors: those that the documentation names exist, and each can be used."""

from copy import deepcopy

import pytest

from tests.dialects.modelarts.examples import POOL, TWO, WHOLE, changed, new_job
from turnout.dialects.modelarts.catalogue import tables

NAMED = (
    "caffe-1.0.0-python2.7",
    "horovod-cp36-tf-1.16.2",
    "horovod_0.20.0-tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64",
    "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64",
    "tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64",
    "pytorch-cp36-1.4.0-v2",
    "xgboost-sklearn-python3.6",
    "mindspore_1.3.0-cuda_10.1-py_3.7-ubuntu_1804-x86_64",
)


def test_engines_of_the_documentation():
    assert set(NAMED) <= set(tables.engines())


@pytest.mark.parametrize("engine", tables.engines().values(), ids=lambda engine: engine.id)
def test_an_engine_can_be_asked_for_as_it_is_listed(engine: tables.CatalogueEngine):
    listed = engine.listed()
    by_id = new_job(changed(WHOLE, "algorithm.engine", {"engine_id": listed["engine_id"]}))
    named = {"engine_name": listed["engine_name"], "engine_version": listed["engine_version"]}
    assert new_job(changed(WHOLE, "algorithm.engine", named)).spec == by_id.spec
    assert by_id.spec.roles[0].program.wants == engine.wants


@pytest.mark.parametrize(
    "flavor", [one for one in tables.flavors().values() if not one.npus], ids=lambda flavor: flavor.id
)
def test_a_flavor_is_what_the_job_gets(flavor: tables.Flavor):
    document = deepcopy(TWO)
    resource = {"flavor_id": flavor.id, "node_count": flavor.max_num}
    document["spec"] = {"resource": resource | ({"pool_id": POOL} if flavor.pool else {})}
    (role,) = new_job(document).spec.roles
    assert role.replicas == flavor.max_num
    listed = flavor.listed()["flavor_info"]
    assert role.resources.millicores == 1000 * listed.get("cpu", {"core_num": 0})["core_num"]
    assert role.resources.memory == listed.get("memory", {"size": 0})["size"] << 30
    assert role.resources.gpus == listed.get("gpu", {"unit_num": 0})["unit_num"]


def test_the_number_of_npus_is_text():
    (npus,) = {str(one.npus) for one in tables.flavors().values() if one.id == "modelarts.kat1.xlarge"}
    info = tables.flavors()["modelarts.kat1.xlarge"].listed()["flavor_info"]
    assert info["npu"]["unit_num"] == npus


def test_cards_of_a_pool():
    cards = {name.rpartition(".")[2]: one.gpus for name, one in tables.flavors().items() if one.pool}
    assert cards == {"xlarge": 1, "2xlarge": 2, "4xlarge": 4, "8xlarge": 8, "16xlarge": 16}
