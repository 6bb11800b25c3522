"""`/metrics`; and every query of the examples, by Debian's Prometheus that scrapes a real service."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.native.driving import Client, create_vertex
from tests.running import ROOT, Service, free_port, running

EXAMPLES = ROOT / "examples" / "monitoring"
ALERT = re.compile(r"^\s+expr: (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running("[engines.local]\ngpus = 2\n") as one:
        one.start()
        one.create("ended", "true")
        one.wait("ended")
        one.create("runs", "sleep", "600")
        one.wait("runs", until="started")
        create_vertex(Client(one), "gpu", "sleep 600", gpus=1)
        one.wait("gpu", until="started")
        yield one


def metrics(service: Service) -> dict[str, float]:
    with urllib.request.urlopen(service.endpoint + "/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


def test_the_metrics_of_two_running_jobs(service: Service) -> None:
    found = metrics(service)
    assert found['turnout_jobs{state="running"}'] == 2
    assert found['turnout_running_jobs{project="default",cluster="ap-beijing"}'] == 2
    assert found['turnout_gpus{engine="local",kind="total"}'] == 2
    assert found['turnout_gpus{engine="local",kind="promised"}'] == 1
    assert found["turnout_job_queue_seconds_count"] == 3
    assert found["turnout_job_start_seconds_count"] == 3
    assert found["turnout_store_bytes"] > 10_000
    assert found['turnout_request_seconds_count{api="tia",status="2xx"}'] == 2
    assert found['turnout_request_seconds_bucket{api="vertex",status="2xx",le="+Inf"}'] == 1


def queries() -> list[str]:
    rules = (EXAMPLES / "alerts.yml").read_text()
    panels = json.loads((EXAMPLES / "grafana.json").read_text())["panels"]
    of_panels = [target["expr"] for panel in panels for target in panel["targets"]]
    return [*ALERT.findall(rules), *(query.replace("$__rate_interval", "1m") for query in of_panels)]


def test_every_metric_of_the_examples_exists(service: Service) -> None:
    known = {re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name) for name in metrics(service)}
    known |= {"turnout_webhook_failing"}  # this service has none
    wanted = {name for query in queries() for name in re.findall(r"turnout_\w+", query)}
    assert {re.sub(r"(_bucket|_sum|_count)$", "", name) for name in wanted} <= known


@pytest.mark.slow
def test_promtool_accepts_the_rules() -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=EXAMPLES, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_prometheus_answers_every_query(service: Service, tmp_path: Path) -> None:
    settings = (EXAMPLES / "prometheus.yml").read_text()
    settings = settings.replace("127.0.0.1:8470", f"127.0.0.1:{service.port}").replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(settings)
    shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
    address = f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not scraped_twice(address):
            assert time.monotonic() < until, "Prometheus has scraped nothing"
            time.sleep(0.2)
        for query in queries():
            assert ask(address, query)["status"] == "success", query
        (value,) = ask(address, 'turnout_gpus{kind="promised"}')["data"]["result"]
        assert value["value"][1] == "1"
        assert ask(address, 'up{job="turnout"}')["data"]["result"][0]["value"][1] == "1"
    finally:
        server.terminate()
        server.wait(20)


def scraped_twice(address: str) -> bool:
    try:
        found = ask(address, "count_over_time(turnout_info[1m])")["data"]["result"]
    except OSError:
        return False
    return bool(found) and float(found[0]["value"][1]) >= 2


def ask(address: str, query: str) -> Any:
    url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)
