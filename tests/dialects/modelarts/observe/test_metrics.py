"""Samples as six series with a value for each minute."""

from tests.dialects.modelarts.driving import Cloud
from tests.dialects.modelarts.past_jobs import at
from tests.running import running
from turnout.dialects.modelarts.observe import metrics
from turnout.job import ReplicaName, Sample

WORKER = ReplicaName("worker", 0)


def series(samples: list[Sample], until: float) -> dict[str, list[float]]:
    listed = metrics.render(samples, at(0), at(until))["metrics"]
    assert isinstance(listed, list)
    return {one["metric"]: one["value"] for one in listed}


def test_six_series_of_equal_length() -> None:
    found = series([Sample(WORKER, at(60.1), cpu=50.123, memory=10, gpu=90, gpu_memory=40)], 185)
    assert found == {
        "cpuUsage": [50.12, -1, -1],
        "memUsage": [10, -1, -1],
        "npuUtil": [-1, -1, -1],
        "npuMemUsage": [-1, -1, -1],
        "gpuUtil": [90, -1, -1],
        "gpuMemUsage": [40, -1, -1],
    }


def test_a_task_that_was_never_measured() -> None:
    assert all(value == [-1] for value in series([], 3).values())


def test_each_sample_belongs_to_the_minute_it_measured() -> None:
    minutes = [Sample(WORKER, at(60 * (n + 1) + jitter), cpu=n) for n, jitter in enumerate([0.2, -0.2, 0.9])]
    assert series(minutes, 181)["cpuUsage"] == [0, 1, 2]


def test_samples_that_come_more_often_are_averaged() -> None:
    often = [Sample(WORKER, at(10 * n), cpu=10 if n <= 6 else 30) for n in range(1, 13)]
    assert series(often, 120)["cpuUsage"] == [10, 30]


def test_the_time_between_two_attempts_is_a_gap() -> None:
    found = series([Sample(WORKER, at(60), cpu=1), Sample(WORKER, at(300), cpu=2)], 300)["cpuUsage"]
    assert found == [1, -1, -1, -1, 2]


def test_a_device_that_could_not_be_read_for_a_while() -> None:
    found = series([Sample(WORKER, at(60), cpu=1), Sample(WORKER, at(120), cpu=2, gpu=5)], 121)
    assert (found["cpuUsage"], found["gpuUtil"]) == ([1, 2], [-1, 5])


def test_what_a_real_job_used() -> None:
    """Half a second of work on one of two cores, measured ten times a second."""
    config = '[limits]\nsample_seconds = 0.1\n[images]\n"tests/anything:1" = "anything"\n'
    with running(config) as service:
        service.start()
        cloud = Cloud(service)
        job_id = cloud.create("busy", "timeout 0.5 sh -c 'while :; do :; done'; true").metadata.id
        service.wait(job_id)
        answer = cloud("show_training_job_metrics", training_job_id=job_id, task_id="worker-0")
    used = {one.metric: one.value for one in answer.metrics}
    assert 1 < used["cpuUsage"][0] <= 100
    assert 0 < used["memUsage"][0] < 100
    assert used["npuUtil"] == used["npuMemUsage"] == [-1]
