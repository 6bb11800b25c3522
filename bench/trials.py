"""A search of trials of a millisecond, compared with a program that uses the library and starts the same trials."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.client import KEY
from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table
from turnout.access import make_token

WIDE = 2
SCRIPT = 'sleep 0.001; echo "TURNOUT_METRIC score=${0#--x=}"'
ALGORITHMS = {"default": "ALGORITHM_UNSPECIFIED", "random": "RANDOM_SEARCH"}


def trials(table: Table, directory: Path, floor: Floor) -> None:
    count, rounds = (100, 2) if table.quick else (200, 5)
    step = table.steps("trials", rounds * len(ALGORITHMS))
    with running(directory / "service") as service:
        _ours(service, "RANDOM_SEARCH", 10)
        for name, algorithm in ALGORITHMS.items():
            alone, ours = list[float](), list[float]()
            for _ in range(rounds):
                alone.append(_alone(name, count))
                ours.append(_ours(service, algorithm, count))
                step()
            what = f"search of {count} 1 ms trials, {name}, {WIDE} wide"
            found = statistics.median(ours), statistics.median(alone)
            table.add(Row(f"trials {name}", what, found[0], "s", found[1], target=2.0))


def _ours(service: Service, algorithm: str, count: int) -> float:
    """Seconds from the request until the search has ended."""
    study = {
        "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
        "algorithm": algorithm,
    }
    pool = {
        "machineSpec": {"machineType": "n4-highcpu-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "python:3.11", "command": ["sh", "-c", SCRIPT]},
    }
    document = {
        "displayName": "bench",
        "studySpec": study,
        "maxTrialCount": count,
        "parallelTrialCount": WIDE,
        "trialJobSpec": {"workerPoolSpecs": [pool]},
    }
    body = json.dumps(document).encode()
    head = (
        f"POST /v1/projects/default/locations/us-central1/hyperparameterTuningJobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {make_token(KEY, time.time())}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    before = time.perf_counter()
    created = json.loads(service.line.ask(head + body))
    job = service.wait(created["name"].rpartition("/")[2])
    took = time.perf_counter() - before
    assert job["state"] == "succeeded", job
    assert f" of {count}:" in job["message"], job["message"]
    return took


def _alone(algorithm: str, count: int) -> float:
    """Seconds that a separate process takes."""
    before = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.trials", algorithm, str(count)], check=True)
    return time.perf_counter() - before


def _main() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    name, count = sys.argv[1], int(sys.argv[2])
    sampler = optuna.samplers.TPESampler if name == "default" else optuna.samplers.RandomSampler
    study = optuna.create_study(sampler=sampler(seed=1), direction="maximize")
    running: list[tuple[optuna.Trial, subprocess.Popen[str]]] = []
    for number in range(count + WIDE):
        if number < count:
            trial = study.ask()
            argument = f"--x={trial.suggest_float('x', 0, 1)}"
            program = subprocess.Popen(["sh", "-c", SCRIPT, argument], stdout=subprocess.PIPE, text=True)
            running.append((trial, program))
        if number >= WIDE - 1 and running:
            trial, program = running.pop(0)
            study.tell(trial, float(program.communicate()[0].partition("=")[2]))
    assert len(study.trials) == count


if __name__ == "__main__":
    _main()
