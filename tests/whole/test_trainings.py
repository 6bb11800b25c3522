"""A real model, trained in each cloud's own way: data uploaded by its storage SDK, read and saved by its libraries."""

import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import aiplatform, storage
from google.oauth2.credentials import Credentials
from obs import ObsClient
from qcloud_cos import CosConfig, CosS3Client

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud
from tests.running import KEY, Service, free_port, reachable_directory, running
from tests.whole.test_frameworks import mounted
from turnout.access import make_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAINER = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"
ENGINE = "pytorch_2.5.1-cuda_12.4-py_3.11-ubuntu_22.04-x86_64"
PACKAGES = "/opt/site"

FIT = """
import pickle
from sklearn.linear_model import LogisticRegression

def fit(rows):
    model = LogisticRegression().fit([row[:2] for row in rows], [int(row[2]) for row in rows])
    print("accuracy", model.score([row[:2] for row in rows], [int(row[2]) for row in rows]), flush=True)
    return pickle.dumps(model)
"""

VERTEX = (
    FIT
    + """
import argparse, os, pandas
from google.cloud import storage

parser = argparse.ArgumentParser()
parser.add_argument("--data")
model = fit(pandas.read_csv(parser.parse_args().data).values.tolist())
bucket, _, directory = os.environ["AIP_MODEL_DIR"].removeprefix("gs://").partition("/")
storage.Client().bucket(bucket).blob(directory + "model.pkl").upload_from_string(model)
"""
)

MODELARTS = (
    FIT
    + """
import argparse, os
import moxing as mox

parser = argparse.ArgumentParser()
parser.add_argument("--obs_data")
parser.add_argument("--obs_model")
args, _ = parser.parse_known_args()
local_data, local_model = "/cache/data", "/cache/model"
mox.file.copy_parallel(args.obs_data, local_data)
with mox.file.File(os.path.join(args.obs_data, "names.txt"), "r") as file:
    print("columns", file.read().strip())
rows = [list(map(float, line.split(","))) for line in open(os.path.join(local_data, "rows.csv")).readlines()[1:]]
os.makedirs(local_model)
with open(os.path.join(local_model, "model.pkl"), "wb") as file:
    file.write(fit(rows))
mox.file.copy_parallel(local_model, args.obs_model)
assert mox.file.exists(os.path.join(args.obs_model, "model.pkl"))
"""
)

TIA = (
    FIT
    + """
import os
from qcloud_cos import CosConfig, CosS3Client

rows = [list(map(float, line.split(","))) for line in open("rows.csv").readlines()[1:]]
host, _, port = os.environ["COS_ENDPOINT"].partition(":")
client = CosS3Client(CosConfig(
    Region=os.environ["TENCENTCLOUD_REGION"], SecretId=os.environ["TENCENTCLOUD_SECRET_ID"],
    SecretKey=os.environ["TENCENTCLOUD_SECRET_KEY"], Token=os.environ["TENCENTCLOUD_TOKEN"],
    Scheme="http", IP=host, Port=int(port or 80)))
client.put_object("iris-1250000000", fit(rows), "out/model.pkl")
"""
)


def rows() -> str:
    """Points on two sides of a line."""
    dice = random.Random(7)
    points = [(dice.uniform(-1, 1), dice.uniform(-1, 1)) for _ in range(200)]
    return "x,y,label\n" + "".join(f"{x},{y},{int(x + 2 * y > 0)}\n" for x, y in points)


def check(model: bytes) -> None:
    """Which side each point is on."""
    trained: Any = pickle.loads(model)
    assert list(trained.predict([[0.5, 0.5], [-0.5, -0.5]])) == [1, 0]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Its jobs have the packages of this environment."""
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    with reachable_directory() as directory, mounted(site, directory / "packages") as packages:
        names = ("tia-1.7.0", "sklearn-cpu.1-6", ENGINE)
        runtimes = "".join(
            f'[runtimes."{name}"]\nmounts = {{ "{PACKAGES}" = "{packages}" }}\n' for name in names
        )
        storage_port = free_port()
        config = f'[engines.local]\nsandbox = "bubblewrap"\n[storage.s3]\nport = {storage_port}\n{runtimes}'
        with running(config) as one:
            one.start()
            one.storage = f"http://127.0.0.1:{storage_port}"  # type: ignore[attr-defined]
            yield one


def test_vertex_from_pandas_to_a_model(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("google.cloud.aiplatform.training_jobs._JOB_WAIT_TIME", 0.1)
    credentials = Credentials(token=make_token(KEY, time.time()))
    aiplatform.init(
        api_endpoint=service.endpoint,
        api_transport="rest",
        project="vision",
        location="us-central1",
        staging_bucket="gs://trainings",
        credentials=credentials,
    )
    client: Any = storage.Client(project="vision", credentials=credentials)
    bucket = client.create_bucket("trainings")
    bucket.blob("data/rows.csv").upload_from_string(rows())
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").touch()
    (tmp_path / "trainer/task.py").write_text(VERTEX)
    setup = "from setuptools import setup; setup(name='trainer', version='1', packages=['trainer'])"
    (tmp_path / "setup.py").write_text(setup)
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=tmp_path, check=True, capture_output=True)
    bucket.blob("trainer-1.tar.gz").upload_from_filename(str(tmp_path / "dist/trainer-1.tar.gz"))
    job = aiplatform.CustomPythonPackageTrainingJob(
        "trains",
        "gs://trainings/trainer-1.tar.gz",
        "trainer.task",
        TRAINER,
        model_serving_container_image_uri="us-docker.pkg.dev/vertex-ai/prediction/sklearn-cpu.1-6:latest",
    )
    model: Any = job.run(
        args=["--data", "gs://trainings/data/rows.csv"],
        environment_variables={"PYTHONPATH": PACKAGES},
        model_display_name="sides",
    )
    assert [one.resource_name for one in aiplatform.Model.list(filter="display_name=sides")] == [
        model.resource_name
    ]
    check(bucket.blob(f"{model.uri.removeprefix('gs://trainings/')}/model.pkl").download_as_bytes())


def test_modelarts_with_moxing(service: Service, sdk_home: None):
    client = ObsClient(KEY.id, KEY.secret, server=service.storage)  # type: ignore[attr-defined]
    for name, content in (
        ("data/rows.csv", rows()),
        ("data/names.txt", "x y label"),
        ("code/train.py", MODELARTS),
    ):
        assert client.putContent("obs-trainings", name, content).status == 200
    cloud = Cloud(service)
    parameters = [
        {"name": "obs_data", "value": "obs://obs-trainings/data/", "constraint": {"type": "String"}},
        {"name": "obs_model", "value": "s3://obs-trainings/out", "constraint": {"type": "String"}},
    ]
    body = {
        "kind": "job",
        "metadata": {"name": "moxing"},
        "algorithm": {
            "code_dir": "/obs-trainings/code/",
            "boot_file": "/obs-trainings/code/train.py",
            "engine": {"engine_id": ENGINE},
            "parameters": parameters,
            "environments": {"PYTHONPATH": PACKAGES},
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.8u", "node_count": 1}},
    }
    made = cloud("create_training_job", body=body).metadata.id
    service.wait("moxing")
    log = cloud.log(made)
    assert cloud.details(made).status.phase == "Completed", log
    assert "columns x y label" in log
    found: Any = client.getObject("obs-trainings", "out/model.pkl", loadStreamInMemory=True)
    check(found.body.buffer)
    client.close()


def test_tia_with_data_from_cos(service: Service):
    config = CosConfig(
        Region="ap-guangzhou",
        SecretId=KEY.id,
        SecretKey=KEY.secret,
        Scheme="http",
        Proxies={"http": service.storage},  # type: ignore[attr-defined]
    )
    client: Any = CosS3Client(config)
    client.put_object("iris-1250000000", rows().encode(), "train/rows.csv")
    client.put_object("iris-1250000000", TIA.encode(), "train/train.py")
    service.create(
        "trains",
        "env",
        f"PYTHONPATH={PACKAGES}",
        "python3",
        "train.py",
        PackageDir=["cos://iris-1250000000.cos.ap-guangzhou.myqcloud.com/train:/data"],
    )
    job = service.wait("trains")
    lines = "\n".join(one.Log for one in service.logs("trains"))
    assert job["state"] == "succeeded", lines
    assert "accuracy" in lines
    got = client.get_object("iris-1250000000", "out/model.pkl")
    check(got["Body"].get_raw_stream().read())
