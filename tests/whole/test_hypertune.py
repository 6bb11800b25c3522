"""Google's cloudml-hypertune in the trials of a tuning job, and the results in Google's SDK."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from google.cloud import aiplatform
from google.cloud.aiplatform import hyperparameter_tuning as parameters

from tests.dialects.vertex.driving import Cloud
from tests.running import ROOT, Service, reachable_directory, running
from tests.whole.test_frameworks import mounted
from tests.whole.test_vertex import initialise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

IMAGE = "gcr.io/team/train"
STEPS = (100, 200, 300)
REPORT = """
import sys, time
from importlib.metadata import version
import hypertune

depth = int(sys.argv[1].removeprefix("--depth="))
reporter = hypertune.HyperTune()
for step in (100, 200, 300):
    for name, value in (("accuracy", depth + step / 1000), ("loss", -depth)):
        reporter.report_hyperparameter_tuning_metric(name, value, step, checkpoint_path="gs://models/100")
print(version("cloudml-hypertune"), hypertune.__file__, flush=True)
"""


class Site(NamedTuple):
    service: Service
    packages: str
    """The directory where programs find the package."""

    def job(self, program: str) -> aiplatform.HyperparameterTuningJob:
        container = {
            "image_uri": f"{IMAGE}:1",
            "command": ["python3", "-c", program],
            "env": [{"name": "PYTHONPATH", "value": self.packages}],
        }
        machine = {"machine_type": "n1-standard-4"}
        pool = {"machine_spec": machine, "replica_count": 1, "container_spec": container}
        return aiplatform.HyperparameterTuningJob(
            display_name="hypertune",
            custom_job=aiplatform.CustomJob("inner", [pool]),
            metric_spec={"accuracy": "maximize", "loss": "minimize"},
            parameter_spec={"depth": parameters.IntegerParameterSpec(1, 3, "linear")},
            max_trial_count=3,
            parallel_trial_count=2,
            search_algorithm="grid",
        )


@pytest.fixture(params=["bubblewrap", "none"])
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    boxed = request.param == "bubblewrap"
    packages = next((ROOT / ".venv-slow/lib").glob("python3.*/site-packages"))
    with reachable_directory() as directory, mounted(packages, directory / "packages") as reachable:
        mounts = f'mounts = {{ "/opt/packages" = "{reachable}" }}' if boxed else ""
        settings = f'[engines.local]\nsandbox = "{request.param}"\n[images]\n"{IMAGE}" = "train"\n'
        with running(f"{settings}[runtimes.train]\n{mounts}\n") as service:
            initialise(service.start(), monkeypatch)
            yield Site(service, "/opt/packages" if boxed else str(reachable))


def said(trial: Any) -> list[tuple[int, dict[str, float]]]:
    return [
        (one.step_count, {metric.metric_id: metric.value for metric in one.metrics})
        for one in trial.measurements
    ]


def told(depth: float) -> list[tuple[int, dict[str, float]]]:
    return [(step, {"accuracy": depth + step / 1000, "loss": -depth}) for step in STEPS]


def depth(trial: Any) -> float:
    return trial.parameters[0].value


def test_metrics_that_the_package_reports(site: Site):
    job = site.job(REPORT)
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert sorted(depth(trial) for trial in job.trials) == [1, 2, 3]
    for trial in job.trials:
        assert said(trial) == told(depth(trial))
        assert trial.final_measurement == trial.measurements[-1]
        answer = Cloud(site.service).entries({"name": trial.custom_job}, ' textPayload:"hypertune"')
        assert [one["textPayload"] for one in answer["entries"]] == [
            f"0.1.0.dev6 {site.packages}/hypertune/__init__.py"
        ]


def test_metrics_are_read_while_the_trial_runs(site: Site):
    job = site.job(REPORT + "time.sleep(600)")
    job.run(sync=False)
    job.wait_for_resource_creation()
    deadline = time.monotonic() + 60
    while not (reported := [one for one in _trials(job) if len(said(one)) == len(STEPS)]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert all(one.state.name == "ACTIVE" and said(one) == told(depth(one)) for one in reported)
    assert not any("final_measurement" in one for one in reported)
    job.cancel()
    with pytest.raises(RuntimeError, match="CANCELED"):
        job.wait()


def _trials(job: aiplatform.HyperparameterTuningJob) -> list[Any]:
    found: Any = aiplatform.HyperparameterTuningJob.get(job.resource_name)
    return found.trials
