"""Models and their versions through Google's SDK."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, Conflict, NotFound
from google.cloud import aiplatform, aiplatform_v1, aiplatform_v1beta1, storage
from google.cloud.aiplatform.models import ModelRegistry

from tests.dialects.vertex.driving import PROJECT, Cloud
from tests.dialects.vertex.test_sdk import initialise
from tests.running import Service
from turnout.dialects.vertex.models.export import _copy
from turnout.storage.embedded.objects import Info, ObjectPage

STAGE = "stage-of-models"
SERVING = "us-docker.pkg.dev/vertex-ai/prediction/sklearn-cpu.1-6:latest"


@pytest.fixture(scope="module", autouse=True)
def bucket(service: Service) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
        return storage.Client(project=PROJECT, credentials=initialise(service, STAGE)).create_bucket(STAGE)


@pytest.fixture(autouse=True)
def sdk(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    initialise(service, STAGE)


def upload(name: str, **fields: Any) -> Any:
    given: Any = {"artifact_uri": f"gs://{STAGE}/{name}", "serving_container_image_uri": SERVING} | fields
    return aiplatform.Model.upload(display_name=name, **given)


def test_local_files_become_a_model(tmp_path: Path, bucket: Any, service: Service):
    (tmp_path / "model.joblib").write_text("weights")
    model = upload("local", artifact_uri=str(tmp_path), labels={"kind": "local"}, description="a model")
    assert model.uri.startswith(f"gs://{STAGE}/")
    assert (model.description, model.labels) == ("a model", {"kind": "local"})
    exported = model.export_model("custom-trained", artifact_destination=f"gs://{STAGE}/exported")
    directory = exported["artifactOutputUri"].removeprefix(f"gs://{STAGE}/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
        assert bucket.blob(f"{directory}/model.joblib").download_as_text() == "weights"


async def test_an_export_into_the_directory_of_the_model_ends():
    names = ["m/a", "m/z"]

    class OneOnAPage:
        async def list(self, url: str, project: str, after: str) -> ObjectPage:
            left = sorted(name for name in names if name > after)[:1]
            found = [Info(name, 1, 1, "", None, None, "", {}, 1) for name in left]
            return ObjectPage(found, [], left[0] if left else "")

        async def copy(self, source: str, target: str, project: str) -> None:
            names.append(target.removeprefix("gs://b/"))

    await _copy(SimpleNamespace(objects=OneOnAPage()), "p", "gs://b/m", "gs://b/m/model-1")  # type: ignore[arg-type]
    assert sorted(names) == ["m/a", "m/model-1/a", "m/model-1/z", "m/z"]


def test_versions_and_aliases():
    first = upload("versioned", model_id="versioned", version_aliases=["stable"])
    second = upload("versioned", parent_model="versioned", is_default_version=True, version_description="2nd")
    registry = ModelRegistry("versioned")
    assert [one.version_id for one in registry.list_versions()] == ["2", "1"]
    assert aiplatform.Model("versioned").version_id == "2"
    registry.add_version_aliases(["stable", "old"], "1")
    assert set(aiplatform.Model("versioned@stable").version_aliases) == {"stable", "old"}
    registry.remove_version_aliases(["old"], "1")
    with pytest.raises(BadRequest, match="default cannot be removed"):
        registry.remove_version_aliases(["default"], "2")
    with pytest.raises(BadRequest, match="is the default"):
        registry.delete_version("2")
    registry.update_version("1", version_description="first", labels={"a": "b"})
    info = registry.get_version_info("1")
    assert (info.version_description, info.version_aliases) == ("first", ["stable"])
    registry.delete_version("1")
    with pytest.raises(NotFound):
        aiplatform.Model("versioned@1")
    with pytest.raises(Conflict):
        upload("again", model_id="versioned")
    assert (first.resource_name, second.version_description) == (second.resource_name, "2nd")


def test_update_list_copy_delete(cloud: Cloud):
    model = upload("listed", labels={"team": "a"})
    model.update(display_name="renamed", labels={"team": "b"})
    assert [one.name for one in aiplatform.Model.list(filter='labels.team="b" AND display_name=renamed')] == [
        model.name
    ]
    assert aiplatform.Model.list(filter="display_name=listed") == []
    copied = model.copy(destination_location="europe-west4")
    assert copied.uri == model.uri
    assert "/locations/europe-west4/models/" in copied.resource_name
    copied.delete()
    page = cloud.send("GET", "models?pageSize=1").body
    following = cloud.send("GET", f"models?pageSize=1&pageToken={page['nextPageToken']}").body
    assert page["models"][0]["name"] != following["models"][0]["name"]
    model.delete()
    with pytest.raises(NotFound):
        aiplatform.Model(model.resource_name)


def test_what_is_wrong_is_refused(cloud: Cloud):
    def refusal(model: Any, **fields: Any) -> tuple[int, str, str]:
        return cloud.send("POST", "models:upload", {"model": model} | fields).error

    assert refusal({}) == (400, "INVALID_ARGUMENT", "model.displayName is required.")
    assert "artifactUri" in refusal({"displayName": "x", "artifactUri": "/tmp"})[2]
    assert "versionAliases: '1st'" in refusal({"displayName": "x", "versionAliases": ["1st"]})[2]
    assert refusal({"displayName": "x"}, modelId="X")[1] == "INVALID_ARGUMENT"
    assert refusal({"displayName": "x"}, parentModel=f"{cloud.parent}/models/none")[1] == "NOT_FOUND"
    other = cloud.parent.replace(PROJECT, "another")
    assert refusal({"displayName": "x"}, parentModel=f"{other}/models/none")[1] == "NOT_FOUND"
    assert cloud.send("GET", "models?filter=size=1").error[1] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("version", [aiplatform_v1, aiplatform_v1beta1])
def test_operations_have_the_messages_of_their_version(cloud: Cloud, version: Any):
    client: Any = version.ModelServiceClient(
        transport="rest",
        credentials=aiplatform.initializer.global_config.credentials,
        client_options={"api_endpoint": cloud.service.endpoint},
    )
    operation = client.upload_model(parent=cloud.parent, model={"display_name": "low level"})
    response = operation.result()
    assert client.get_model(name=response.model).version_id == response.model_version_id == "1"
    again = client.get_operation({"name": operation.operation.name})
    assert again.done
    assert again.response.value == operation.operation.response.value
    client.delete_model(name=response.model).result()
