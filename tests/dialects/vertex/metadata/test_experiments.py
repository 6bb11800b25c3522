"""The SDK's experiments: runs with parameters, metrics and time series, read back as a data frame."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import NotFound
from google.cloud import aiplatform
from google.cloud.aiplatform.metadata import metadata

from tests.dialects.vertex.driving import Cloud
from tests.dialects.vertex.test_sdk import initialise, pools
from tests.running import Service

STAGE = "stage-of-experiments"


@pytest.fixture(autouse=True)
def sdk(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    monkeypatch.setattr("google.cloud.aiplatform.jobs._JOB_WAIT_TIME", 0.05)
    # The SDK looks for default credentials where a TensorBoard was set before.
    tracker: Any = metadata._experiment_tracker
    monkeypatch.setattr(tracker, "_global_tensorboard", None)
    initialise(service, STAGE)
    yield
    tracker.reset()


def experiment(name: str, tensorboard: Any = None) -> None:
    aiplatform.init(experiment=name, experiment_tensorboard=tensorboard)


def test_three_runs_are_read_back_as_a_data_frame():
    pytest.importorskip("pandas")
    board = aiplatform.Tensorboard.create(display_name="board")
    experiment("three-runs", board.resource_name)
    for number in range(3):
        with aiplatform.start_run(f"run-{number}"):
            aiplatform.log_params({"rate": 0.1 * number, "layers": number, "kind": "cnn"})
            aiplatform.log_metrics({"accuracy": 0.5 + 0.1 * number})
            for step in range(1, 4):
                aiplatform.log_time_series_metrics({"loss": 1.0 / step}, step=step)
    frame = aiplatform.get_experiment_df("three-runs").sort_values("run_name")
    assert list(frame["run_name"]) == ["run-0", "run-1", "run-2"]
    assert list(frame["metric.accuracy"]) == pytest.approx([0.5, 0.6, 0.7])
    assert list(frame["param.kind"]) == ["cnn"] * 3
    assert list(frame["state"]) == ["COMPLETE"] * 3
    assert list(frame["time_series_metric.loss"]) == pytest.approx([1 / 3] * 3)
    run = aiplatform.ExperimentRun("run-1", "three-runs")
    assert list(run.get_time_series_data_frame()["loss"]) == pytest.approx([1.0, 0.5, 1 / 3])
    assert run.get_params()["layers"] == 1
    run.delete()
    assert [one.name for one in aiplatform.ExperimentRun.list(experiment="three-runs")] == ["run-2", "run-0"]


def test_a_custom_job_is_a_run_of_an_experiment():
    experiment("of-jobs")
    with aiplatform.start_run("job"):
        pass
    aiplatform.CustomJob("in an experiment", pools("true")).run(
        experiment="of-jobs", experiment_run="job", service_account="me@p1.iam.gserviceaccount.com"
    )
    (run,) = aiplatform.ExperimentRun.list(experiment="of-jobs")
    assert run.name == "job"


def test_artifacts_and_executions():
    experiment("lineage")
    with aiplatform.start_run("trains"):
        data = aiplatform.Artifact.create(
            schema_title="system.Dataset", uri="gs://data/x", display_name="data", metadata={"rows": 3}
        )
        model = aiplatform.Artifact.create(schema_title="system.Model", uri="gs://models/x")
        with aiplatform.start_execution(
            schema_title="system.ContainerExecution", display_name="training"
        ) as execution:
            execution.assign_input_artifacts([data])
            execution.assign_output_artifacts([model])
    assert [one.uri for one in execution.get_input_artifacts()] == ["gs://data/x"]
    assert [one.uri for one in execution.get_output_artifacts()] == ["gs://models/x"]
    assert [one.name for one in aiplatform.Artifact.list(filter='uri="gs://data/x"')] == [data.name]
    data.update(metadata={"rows": 4}, description="more")
    assert aiplatform.Artifact(data.resource_name).metadata["rows"] == 4


def test_what_does_not_exist(cloud: Cloud):
    with pytest.raises(NotFound):
        aiplatform.Tensorboard("123")
    answer = cloud.send(
        "POST", "metadataStores/none/contexts?contextId=x", {"schemaTitle": "system.Experiment"}
    )
    assert answer.error[:2] == (404, "NOT_FOUND")
