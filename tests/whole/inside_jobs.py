"""Run by `test_inside_jobs.py` as an ordinary user: requests by that user and by the user's jobs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.running import Service, free_port, running

ASK = """
import json, sys, urllib.error, urllib.request
told = {}
for name, url in json.loads(sys.argv[1]).items():
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()
            told[name] = answer.status
    except urllib.error.HTTPError as error:
        error.close()
        told[name] = error.code
    except OSError as error:
        told[name] = "unreachable"
print("told", json.dumps(told), flush=True)
"""


def main() -> None:
    told: dict[str, Any] = {}
    for network in ("host", "private", "opened"):
        for flags in (("--no-auth",), ()):
            with running(settings(network, port := free_port())) as service:
                service.port = port
                service.start(*flags)
                key = f"{network} {'without' if flags else 'with'} auth"
                told[key] = {"user": asked_by_user(service), "job": asked_by_job(service)}
    sys.stdout.write(json.dumps(told))


def settings(network: str, port: int) -> str:
    reach = f'reach = ["127.0.0.1:{port}"]\n' if network == "opened" else ""
    kind = "host" if network == "host" else "private"
    return f'[engines.local]\nsandbox = "bubblewrap"\nnetwork = "{kind}"\n{reach}'


def urls(service: Service) -> str:
    paths = {
        "native": "/turnout/v1/whoami",
        "gcs": "/storage/v1/b?project=default",
        "vertex": "/v1/projects/default/locations/us-central1/customJobs",
    }
    return json.dumps({name: service.endpoint + path for name, path in paths.items()})


def asked_by_user(service: Service) -> Any:
    done = subprocess.run(
        ["/usr/bin/python3", "-c", ASK, urls(service)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.removeprefix("told "))


def asked_by_job(service: Service) -> Any:
    service.create("asks", "python", "-c", ASK, urls(service))
    assert service.wait("asks")["state"] == "succeeded", service.logs("asks")
    [out] = Path(service.data, "attempts").glob("*_master-0/stdout")
    return json.loads(out.read_text().removeprefix("told "))


main()
