"""docs/vertex-fields.md says something about every field."""

import re

from tests.running import ROOT
from turnout.dialects.vertex.protobuf import schema
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob
from turnout.dialects.vertex.wire import CustomJob, Message


def documented() -> dict[str, list[str]]:
    text = (ROOT / "docs/vertex-fields.md").read_text()
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    return {
        section.split("\n", 1)[0]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for section in sections
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
    assert documented() == found
