"""`turnout run`: a command as a Vertex custom job, with this directory as its code."""

import json
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from turnout.cli import cp
from turnout.cli.client import Document
from turnout.cli.login import connect
from turnout.cli.submit import created
from turnout.errors import Invalid

BUCKET = "turnout-run"
LEFT_OUT = frozenset({"__pycache__", "venv", "node_modules"})
GPU = "NVIDIA_TESLA_T4"
"""The kind does not matter on this machine, but Vertex' document needs one."""


class Machines(NamedTuple):
    gpus: int
    replicas: int
    machine: str
    image: str


def run(command: list[str], machines: Machines, name: str, detach: bool, endpoint: str | None) -> None:
    here = Path.cwd()
    name = name or here.name or "run"
    client = connect(endpoint)
    project = client.get("whoami")["project"]
    # Buckets belong to one project each, and a name can be used again.
    bucket = f"{BUCKET}-{re.sub(r'[^a-z0-9-]', '-', project.lower())}"[:60].rstrip("-")
    folder = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:60]}-{secrets.token_hex(4)}"
    sources = sorted(
        str(path) for path in here.iterdir() if path.name not in LEFT_OUT and not path.name.startswith(".")
    )
    if not sources:
        raise Invalid(f"{here} has no files to run: go to the directory of your program first")
    cp.cp([*sources, f"gs://{bucket}/{folder}/"], recursive=True, endpoint=endpoint)
    body = json.dumps(document(name, command, f"/gcs/{bucket}/{folder}", machines)).encode()
    job = client.send("POST", "jobs", query={}, body=body)
    created(client, job, follow=not detach)


def document(name: str, command: list[str], directory: str, machines: Machines) -> Document:
    """The custom job. Its first pool has one replica, as Vertex wants it; the second has the others."""
    counts = [1, machines.replicas - 1] if machines.replicas > 1 else [1]
    return {
        "displayName": name,
        "jobSpec": {"workerPoolSpecs": [_pool(count, command, directory, machines) for count in counts]},
    }


def _pool(count: int, command: list[str], directory: str, machines: Machines) -> Document:
    machine: Document = {"machineType": machines.machine}
    if machines.gpus:
        machine |= {"acceleratorType": GPU, "acceleratorCount": machines.gpus}
    return {
        "machineSpec": machine,
        "replicaCount": count,
        "containerSpec": {
            "imageUri": machines.image,
            "command": ["/bin/sh", "-c", 'cd "$0" && exec "$@"', directory],
            "args": command,
        },
    }
