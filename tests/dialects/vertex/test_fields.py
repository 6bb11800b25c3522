"""docs/vertex-fields.md says something about every field."""

import re

from tests.running import ROOT
from turnout.dialects.vertex import schema
from turnout.dialects.vertex.wire import CustomJob, Message


def documented() -> dict[str, list[str]]:
    text = (ROOT / "docs/vertex-fields.md").read_text()
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    return {
        section.split("\n", 1)[0]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for section in sections
    }


def fields(message: type[Message]) -> dict[str, list[str]]:
    table = schema.of(message)
    found = {message.__name__: [field.json for field in table.fields]}
    for field in table.fields:
        if field.message:
            found |= fields(field.message)
    return found


def test_every_field_is_documented_in_its_order():
    assert documented() == fields(CustomJob)
