"""Jobs with an algorithm: what is merged, what contradicts it, and invalid algorithms."""

import json
from typing import Any

import pytest

from tests.dialects.modelarts.examples import (
    ALGORITHM,
    ONE,
    PYTORCH,
    SEARCH,
    algorithm,
    changed,
    code_of,
    new_job,
    options,
    parameter,
)
from turnout.dialects.modelarts import decode
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.errors import Invalid


def test_one_that_is_not_there():
    with pytest.raises(Invalid) as caught:
        new_job(ONE)
    assert (caught.value.message, caught.value.code) == ("algorithm not found.", "ModelArts.2755")


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("algorithm.code_dir", "/other/", "2814"),
        ("algorithm.engine", {"engine_id": PYTORCH}, "2814"),
        ("algorithm.parameters.2.value", "one", "2825"),
        ("algorithm.parameters.2.name", "other", "2766"),
        ("algorithm.inputs", [{"name": "x", "remote": {"obs": {"obs_url": "/a/"}}}], "2814"),
        ("algorithm.subscription_id", "s", "2788"),
    ],
)
def test_what_contradicts_it(path: str, value: Any, code: str):
    assert code_of(changed(ONE, path, value), asset=algorithm())[0] == code


def test_more_parameters_only_where_it_allows_them():
    document = changed(
        ONE, "algorithm.parameters", [*ONE["algorithm"]["parameters"], {"name": "more", "value": "1"}]
    )
    assert code_of(document, asset=algorithm())[0] == "2814"
    open_one = changed(ALGORITHM, "job_config.parameters_customization", True)
    assert "--more=1" in options(new_job(document, algorithm(open_one)))


def test_what_is_not_editable_stays():
    fixed: dict[str, Any] = parameter("input_dir") | {"value": "a"}
    fixed["constraint"]["editable"] = False
    document = changed(ALGORITHM, "job_config.parameters.0", fixed)
    assert code_of(ONE, asset=algorithm(document)) == ("2814", "algorithm.parameters[0].value")


@pytest.mark.parametrize(
    ("key", "values", "code"),
    [
        ("flavor_type", ["CPU"], "2763"),
        ("flavor_type", ["GPU"], ""),
        ("host_distributed_mode", ["multiple"], ""),
    ],
)
def test_what_it_requires(key: str, values: list[str], code: str):
    needs = [{"key": key, "values": values, "operator": "in"}]
    asset = algorithm(changed(ALGORITHM, "resource_requirements", needs))
    if code:
        assert code_of(ONE, asset=asset)[0] == code
    else:
        new_job(ONE, asset)


def test_an_ascend_engine_does_not_run_on_gpus():
    engine = {"engine_id": "pytorch_1.11.0-cann_6.3.0-py_3.7-euler_2.8.3-aarch64"}
    asset = algorithm(changed(ALGORITHM, "job_config.engine", engine))
    assert code_of(ONE, asset=asset)[0] == "2840"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("metadata.name", "", "2788"),
        ("job_config", None, "2788"),
        ("job_config.parameters.2.value", "x", "2768"),
        ("job_config.parameters.1.name", "input_dir", "2767"),
        ("job_config.boot_file", "/elsewhere/a.py", "2792"),
        ("job_config.engine", {}, "2830"),
        ("job_config.inputs", [{"name": "a"}, {"name": "a"}], "2753"),
        ("resource_requirements", [{"key": "color", "values": ["red"]}], "2788"),
        ("advanced_config", {"auto_search": SEARCH}, "2826"),
    ],
)
def test_one_that_makes_no_sense(path: str, value: Any, code: str):
    document = json.dumps(changed(ALGORITHM, path, value)).encode()
    with pytest.raises(Invalid) as caught:
        stored_algorithm(decode.decode_algorithm(document))
    assert caught.value.code == f"ModelArts.{code}"


def test_what_is_kept_can_be_sent_again():
    stored = json.loads(algorithm().document)
    assert json.loads(algorithm(stored).document) == stored
    assert stored["metadata"]["is_valid"] is True


def test_requirements_go_by_both_their_names():
    needs = [{"key": "flavor_type", "value": ["GPU"]}]
    stored = json.loads(algorithm(changed(ALGORITHM, "resource_requirements", needs)).document)
    (requirement,) = stored["resource_requirements"]
    assert requirement["value"] == requirement["values"] == ["GPU"]
