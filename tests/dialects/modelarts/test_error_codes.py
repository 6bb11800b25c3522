"""Each error in a job or an algorithm and its code, through Huawei's own client."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.modelarts.driving import Cloud, put, refused, send
from tests.dialects.modelarts.examples import ALGORITHM, CPU, SEARCH, TWO, WHOLE, changed
from tests.dialects.modelarts.test_round_trip import CONFIG
from tests.running import Service, free_port, running

LIMITS = """
[datasets.versions-only.versions]
v1 = "obs://data/one/"

[datasets.with-default]
url = "obs://data/all/"
versions = {{ v1 = "obs://data/one/" }}

[limits]
code_files = 3
code_depth = 2
code_bytes = 1000

[storage.buckets.unreachable]
url = "s3://nothing"
endpoint = "http://127.0.0.1:{port}"
key = "a"
secret = "b"
allow_http = true
"""
JOB = changed(changed(WHOLE, "metadata.training_experiment_reference", None), "metadata.name", "matrix")
PARAMETER = "algorithm.parameters.0"
FLAVOR = "spec.resource.flavor_id"
INPUT = "algorithm.inputs.0"
ROWS: list[tuple[str, str, Any]] = [
    ("2753", f"{INPUT}.name", "a b"),
    ("2753", f"{INPUT}.remote", None),
    ("2755", "algorithm", {"id": "none"}),
    ("2757", "algorithm", {"code_dir": "/code/nothing/", "boot_file": "/code/nothing/1.py"}),
    ("2758", "algorithm.boot_file", "/code/train/demo-code/none.py"),
    ("2759", "algorithm", {"code_dir": "/matrix/many/", "boot_file": "/matrix/many/1.py"}),
    ("2760", "algorithm", {"code_dir": "/matrix/deep/", "boot_file": "/matrix/deep/1.py"}),
    ("2761", "algorithm", {"code_dir": "/matrix/large/", "boot_file": "/matrix/large/1.py"}),
    ("2765", f"{PARAMETER}.constraint.valid_type", "Choice"),
    ("2766", f"{PARAMETER}.value", ""),
    ("2767", "algorithm.parameters", [{"name": "a", "value": "1"}] * 2),
    ("2770", f"{PARAMETER}.constraint.valid_range", ["9", "1"]),
    ("2780", "algorithm.engine", {"engine_id": "none"}),
    ("2781", FLAVOR, "none"),
    ("2782", "algorithm.inputs.1.remote.dataset", {"id": "versions-only", "version_id": "none"}),
    ("2782", "algorithm.inputs.1.remote.dataset", {"id": "with-default", "version_id": "none"}),
    ("2782", "algorithm.inputs.1.remote.dataset", {"id": "versions-only", "service_type": "V3"}),
    ("2783", "algorithm.inputs.1.remote.dataset.id", "none"),
    ("2788", "kind", "visualization_job"),
    ("2788", "metadata.name", "a b"),
    ("2791", f"{INPUT}.remote.obs.obs_url", "nowhere"),
    ("2792", "algorithm.boot_file", "/code/worker/work.py"),
    ("2793", "spec.resource.node_count", 17),
    ("2806", "algorithm", {"engine": {"image_url": "a:1"}}),
    ("2815", FLAVOR, "modelarts.bm.gpu.8v100"),
    ("2816", f"{PARAMETER}.value", "101"),
    ("2825", f"{PARAMETER}.value", "x"),
    ("2824", "algorithm.policies.auto_search", SEARCH | {"reward_attrs": SEARCH["reward_attrs"] * 2}),
    ("2826", "algorithm.policies.auto_search", SEARCH | {"search_params": []}),
    ("2824", "algorithm.policies.auto_search", {"skip_search_params": "epochs"}),
    ("2826", "algorithm.policies.auto_search", SEARCH | {"skip_search_params": "epochs"}),
    ("2826", "algorithm.policies.auto_search", SEARCH | {"skip_search_params": "none"}),
    ("2830", "algorithm.engine", {"engine_name": "PyTorch"}),
    ("2834", f"{INPUT}.remote_constraint.0.data_type", "csv"),
    ("2854", f"{INPUT}.remote", {}),
    ("2855", "algorithm.engine.run_user", "999"),
    ("2857", "algorithm.local_code_dir", "/tmp"),
    ("2859", "algorithm.working_dir", "relative"),
    ("2842", "metadata.training_experiment_reference", {"id": "none"}),
    ("0102", "metadata.workspace_id", "none"),
]
IN_ALGORITHMS: list[tuple[str, str, Any]] = [
    ("2753", "job_config", ALGORITHM["job_config"] | {"inputs": [{"name": "a"}], "outputs": [{"name": "a"}]}),
    ("2768", "job_config.parameters.2.value", "x"),
    ("2769", "job_config.parameters.2", {"constraint": {"type": "Integer", "valid_type": "Range"}}),
    ("2780", "job_config.engine", {"engine_id": "none"}),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("matrix")
    settings = CONFIG.format(pool="poolfaf38d76", image="xxxxxxxx/fastseq:1.2", place=place)
    with running(settings + LIMITS.format(port=free_port())) as one:
        yield one.start()


@pytest.fixture(scope="module")
def cloud(service: Service) -> Cloud:
    put(service, "obs://code/train/demo-code/boot.py", "")
    put(service, "obs://xxxxxx-rse/test/moxingtest-code/test_obs_gpu.py", "")
    put(service, "obs://data/mnist/x", "")
    put(service, "obs://data/one/x", "")
    for number in range(4):
        put(service, f"obs://matrix/many/{number}.py", "")
    put(service, "obs://matrix/deep/1.py", "")
    put(service, "obs://matrix/deep/a/b/c/d.py", "")
    put(service, "obs://matrix/large/1.py", "#" * 1001)
    return Cloud(service)


@pytest.mark.parametrize(("code", "path", "value"), ROWS, ids=lambda one: str(one)[:40])
def test_a_job(cloud: Cloud, code: str, path: str, value: Any):
    body = changed(JOB, path, value)
    if path == "algorithm" and "code_dir" in value:
        body["algorithm"]["engine"] = JOB["algorithm"]["engine"]
    with refused(f"ModelArts.{code}"):
        cloud("create_training_job", body=body)


def test_too_few_gpus_are_reported_in_the_words_of_modelarts(cloud: Cloud):
    with refused("ModelArts.2815", match="The job needs 16 GPUs, and the public pool has 1."):
        cloud("create_training_job", body=changed(JOB, FLAVOR, "modelarts.bm.gpu.8v100"))


@pytest.mark.parametrize(("code", "path", "value"), IN_ALGORITHMS, ids=lambda one: str(one)[:40])
def test_an_algorithm(cloud: Cloud, code: str, path: str, value: Any):
    if isinstance(value, dict) and "constraint" in value:
        value = {"name": "a", "value": "9", "constraint": value["constraint"] | {"valid_range": ["1", "3"]}}
    with refused(f"ModelArts.{code}"):
        cloud("create_algorithm", body=changed(ALGORITHM, path, value))


def test_a_pool_that_is_not_there(cloud: Cloud):
    with refused("ModelArts.2890", 404):
        cloud("create_training_job", body=changed(TWO, "spec.resource.pool_id", "none"))


def test_a_name_that_is_taken(cloud: Cloud):
    cloud("create_training_job", body=changed(JOB, "metadata.name", "taken"))
    with refused("ModelArts.2751"):
        cloud("create_training_job", body=changed(JOB, "metadata.name", "taken"))


@pytest.mark.parametrize(
    ("code", "algorithm", "flavor"),
    [
        (
            "2763",
            {"resource_requirements": [{"key": "flavor_type", "values": ["GPU"], "operator": "in"}]},
            CPU,
        ),
        ("2814", {}, CPU),
    ],
)
def test_what_does_not_fit_the_algorithm(cloud: Cloud, code: str, algorithm: dict[str, Any], flavor: str):
    whole = changed(ALGORITHM, "metadata.name", f"fits-{code}") | algorithm
    made = cloud("create_algorithm", body=whole).metadata.id
    values = {"input_dir": "a", "input_file": "b", "large_file_method": "1"}
    more = {"other": "c"} if code == "2814" else {}
    parameters = [{"name": name, "value": value} for name, value in (values | more).items()]
    body = changed(JOB, "algorithm", {"id": made, "parameters": parameters})
    with refused(f"ModelArts.{code}"):
        cloud("create_training_job", body=changed(body, FLAVOR, flavor))


def test_an_engine_and_a_flavor_that_do_not_go_together(cloud: Cloud):
    engines = cloud("show_training_job_engines").items
    ascend = next(engine.engine_id for engine in engines if "cann" in engine.engine_id)
    body = changed(JOB, "algorithm.engine", {"engine_id": ascend})
    with refused("ModelArts.2840"):
        cloud("create_training_job", body=changed(body, FLAVOR, "modelarts.p3.large.public"))


def test_a_store_that_cannot_be_reached(cloud: Cloud):
    """A job looks again before it starts; an algorithm cannot say so later."""
    body = changed(changed(JOB, "algorithm.code_dir", "/unreachable/x/"), "metadata.name", "unreachable")
    body = changed(body, "algorithm.boot_file", "/unreachable/x/1.py")
    made = cloud("create_training_job", body=body).metadata.id
    note = "'/unreachable/x/' could not be checked: the store did not answer within 2 s"
    assert any(note in event for event in cloud.events(made))
    cloud("delete_training_job", training_job_id=made)
    whole = changed(ALGORITHM, "job_config.code_dir", "/unreachable/x/")
    with refused("ModelArts.2773", match="did not answer within 2 s"):
        cloud("create_algorithm", body=changed(whole, "job_config.boot_file", "/unreachable/x/1.py"))


def test_every_refusal_says_what_to_do(service: Service, cloud: Cloud):
    for code, path, value in ROWS:
        body = changed(JOB, path, value)
        answer = send(service, "POST", "/v2/default/training-jobs", json.dumps(body))
        said = answer.json()
        assert answer.status_code == 400, code
        assert all(len(said[key]) > 8 for key in ("error_code", "error_msg", "error_solution")), said
        assert answer.headers["x-request-id"]
