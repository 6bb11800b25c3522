"""docs/vertex-fields.md says something about every field."""

import inspect
import re

from google.cloud import aiplatform

from tests.running import ROOT
from turnout.dialects.vertex.pipelines.wire import TrainingPipeline
from turnout.dialects.vertex.protobuf import schema
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob, Message

ARGUMENTS = "Arguments of the SDK's training jobs"


def documented() -> dict[str, list[str]]:
    text = (ROOT / "docs/vertex-fields.md").read_text()
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    return {
        section.split("\n", 1)[0]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for section in sections
        if not section.startswith(ARGUMENTS)
    }


def gather(message: type[Message], found: dict[str, list[str]]) -> None:
    if message.__name__ in found:
        return
    table = schema.of(message)
    found[message.__name__] = [field.json for field in table.fields]
    for field in table.fields:
        if field.message:
            gather(field.message, found)


def test_every_field_is_documented_in_its_order():
    found: dict[str, list[str]] = {}
    gather(CustomJob, found)
    gather(HyperparameterTuningJob, found)
    gather(TrainingPipeline, found)
    assert documented() == found


def test_every_argument_of_the_training_jobs_is_documented():
    found: set[str] = set()
    for kind in (
        aiplatform.CustomTrainingJob,
        aiplatform.CustomContainerTrainingJob,
        aiplatform.CustomPythonPackageTrainingJob,
    ):
        for name in ("__init__", "run", "submit"):
            call = getattr(kind, name, None)
            found |= set(inspect.signature(inspect.unwrap(call)).parameters) if call else set()
    text = (ROOT / "docs/vertex-fields.md").read_text()
    section = text.partition(f"## {ARGUMENTS}")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)))
    assert sorted(named) == sorted(found - {"self"})
