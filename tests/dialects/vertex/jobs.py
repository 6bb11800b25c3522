"""Custom jobs to try things on: small ones that are right, with one thing changed."""

from typing import Any

import msgspec

from turnout.config import RuntimeSettings
from turnout.dialects.vertex import translate
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf import codec
from turnout.job import NewJob
from turnout.service.images import ImageRules

PREBUILT = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"
PLACE = ("p1", "us-central1", "ap-beijing", ("ap-beijing", "big"))
HERE = Installation(*PLACE)
MAPPED = Installation(*PLACE, rules=ImageRules({"python:*": "plain"}, {"plain": RuntimeSettings()}))
"""A runtime stands for the image, so the log begins with what the program prints."""

Document = dict[str, Any]


def pool(**fields: Any) -> Document:
    """One replica that prints something."""
    container = {"imageUri": "python:3.11", "command": ["echo"], "args": ["hello"]}
    return {"machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": container} | fields


def container(**fields: Any) -> Document:
    return pool(containerSpec={"imageUri": "python:3.11", "command": ["echo"]} | fields)


def package(**fields: Any) -> Document:
    spec = {
        "executorImageUri": PREBUILT,
        "packageUris": ["gs://stage/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
    }
    return {"machineSpec": {"machineType": "n1-standard-4"}, "pythonPackageSpec": spec | fields}


def job(*pools: Document, spec: Document | None = None, **fields: Any) -> Document:
    pools = pools or (pool(),)
    return {"displayName": "test", "jobSpec": {"workerPoolSpecs": list(pools)} | (spec or {})} | fields


def translated(document: Document, place: Installation = HERE) -> NewJob:
    return translate.new_job(codec.custom_job(msgspec.json.encode(document)), place)
