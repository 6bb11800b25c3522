"""Our tables against Google's own message classes, which live in the environment of the slow tests."""

import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dialects.vertex.jobs import job
from tests.running import ROOT
from turnout.dialects.vertex import render
from turnout.dialects.vertex.protobuf import codec, schema
from turnout.dialects.vertex.wire import AcceleratorType, CustomJob, JobState, Message
from turnout.job import LIVE, Job, Reason, State
from turnout.service import JobView

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DESCRIBE = """
import json, sys
from google.cloud.aiplatform_v1.types import CustomJob
from google.protobuf import json_format
kinds = {1: "double", 3: "int64", 5: "int32", 8: "bool", 9: "string", 14: "enum"}
own = {"google.protobuf.Duration": "duration", "google.protobuf.Timestamp": "timestamp", "google.protobuf.Any": "any"}
messages, enums = {}, {}
def describe(message):
    if message.full_name in own or message.full_name in messages:
        return
    fields = messages[message.full_name] = []
    for field in message.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        value = field.message_type.fields_by_name["value"] if is_map else field
        kind = kinds.get(value.type, "message")
        kind = own.get(value.message_type.full_name, kind) if value.message_type else kind
        if kind == "message":
            describe(value.message_type)
        if value.enum_type:
            enums[value.enum_type.full_name] = {one.name: one.number for one in value.enum_type.values}
        oneof = field.containing_oneof.name if field.containing_oneof else ""
        fields.append([field.name, field.json_name, kind, field.is_repeated and not is_map, is_map, oneof])
describe(CustomJob.pb().DESCRIPTOR)
print(json.dumps([messages, enums]), flush=True)
for line in sys.stdin:
    try:
        read = json_format.MessageToDict(json_format.ParseDict(json.loads(line), CustomJob.pb()()))
        print(json.dumps(read), flush=True)
    except json_format.ParseError as error:
        print("null", flush=True)
"""


class Google:
    """The other side: describes its messages, then reads documents."""

    def __init__(self) -> None:
        argv = [str(ROOT / ".venv-slow/bin/python"), "-c", DESCRIBE]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.messages, self.enums = self._answer()

    def read(self, document: object) -> Any:
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(document) + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        return msgspec.json.decode(self._process.stdout.readline())


@pytest.fixture(scope="module")
def google():
    one = Google()
    yield one
    one.close()


def ours(message: type[Message]) -> dict[str, list[Any]]:
    """Each message that this one leads to, described in the same way."""
    table = schema.of(message)
    found = {
        message.__qualname__: [
            [field.name, field.json, field.kind, field.repeated, field.map, field.oneof]
            for field in table.fields
        ]
    }
    for field in table.fields:
        if field.message:
            found |= ours(field.message)
    return found


def test_the_fields_are_googles(google: Google):
    theirs = {name.rpartition(".")[2]: fields for name, fields in google.messages.items()}
    mine = ours(CustomJob)
    assert mine.keys() == theirs.keys()
    for name, fields in mine.items():
        assert sorted(fields) == sorted(theirs[name]), name


def test_the_enums_are_googles(google: Google):
    for enum in (JobState, AcceleratorType):
        assert google.enums[f"{schema.PACKAGE}.{enum.__qualname__}"] == {one.name: one.value for one in enum}
    for message in ("Scheduling.Strategy", "ReservationAffinity.Type"):
        outer, _, inner = message.partition(".")
        enum = getattr(next(kind for kind in Message.__subclasses__() if kind.__name__ == outer), inner)
        assert google.enums[f"{schema.PACKAGE}.{message}"] == {one.name: one.value for one in enum}


@pytest.mark.parametrize("state", State)
def test_answers_are_what_google_can_read(google: Google, state: State):
    reason = None if state in LIVE else Reason.PROGRAM_FAILED
    reason = Reason.STOPPED if state is State.STOPPING else reason
    names = ("p1", "vertex", "vertex:us-central1", "", "test", "ap-beijing")
    row = Job(10**18, *names, state, 0, 1, 10**18 + 1, started=2, ended=10**18, reason=reason)
    document = msgspec.json.encode(job(labels={"a": "b"}, encryptionSpec={"kmsKeyName": "k"}))
    shown = render.custom_job(JobView(row, (), document), web_access_uris={"workerpool0-0": "http://x"})
    read = google.read(shown)
    assert read["state"] == render.STATES[state].name
    assert {name: value for name, value in read.items() if not name.endswith("Time")} == {
        name: value for name, value in shown.items() if not name.endswith("Time")
    }
    assert read["startTime"] == "1970-01-01T00:00:00.000000002Z"


WORDS = st.sampled_from(
    ["x", "1", "-1", "2.0", "1e1", "SPOT", "4", "1.5s", "-2s", "0.000000001s", "true", ""]
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 7) | st.sampled_from([1.0, 2.5]) | WORDS


def messages(kind: type[Message]) -> st.SearchStrategy[dict[str, Any]]:
    """Right for the most part, in either spelling."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in schema.of(kind).fields:
        if field.output or field.kind == "any":
            continue
        value = messages(field.message) if field.message else _scalar(field)
        if field.repeated:
            value = st.lists(value, max_size=2)
        if field.map:
            value = st.dictionaries(WORDS, value, max_size=2)
        optional[field.json if len(optional) % 3 else field.name] = value | st.none()
    return st.fixed_dictionaries({}, optional=optional)


def _scalar(field: schema.Field) -> st.SearchStrategy[Any]:
    right = {
        "string": WORDS,
        "bool": st.booleans(),
        "int32": st.integers(-5, 5),
        "int64": st.integers(-5, 5) | st.integers(-5, 5).map(str),
        "duration": st.sampled_from(["1.5s", "-2s", "0s", "0.000000001s"]),
    }
    if field.enum:
        return st.sampled_from([one.name for one in field.enum] + [one.value for one in field.enum])
    return st.one_of(right[field.kind], right[field.kind], right[field.kind], SCALARS)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=messages(CustomJob))
def test_documents_are_read_as_google_reads_them(google: Google, document: dict[str, Any]):
    """We refuse what it refuses, and what both take means the same; numbers of no enum are only refused by us."""
    try:
        mine = codec.encode(codec.custom_job(msgspec.json.encode(document)).message)
    except codec.Invalid:
        mine = None
    theirs = google.read(document)
    if mine is None and theirs is not None:
        assert _has_unknown_number(theirs, CustomJob)
    else:
        assert mine == theirs


def _has_unknown_number(document: dict[str, Any], kind: type[Message]) -> bool:
    """Google shows a number where an enum has no name for it."""
    for name, value in document.items():
        field = schema.of(kind).by_name[name]
        values = value if isinstance(value, list) else [value]
        if field.enum and any(isinstance(one, int) for one in values):
            return True
        if field.message and any(_has_unknown_number(one, field.message) for one in values):
            return True
    return False
