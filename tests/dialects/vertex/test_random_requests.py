"""Random requests: the response is always one of Google's, and never an internal error."""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Answer, Cloud
from turnout.dialects.vertex.protobuf import schema
from turnout.dialects.vertex.protobuf.schema import Field
from turnout.dialects.vertex.wire import CustomJob, Message

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "n1-standard-4",
        "gs://b/x",
        "3s",
        "-1s",
        "9" * 30,
        "2014-10-02T15:01:23Z",
        "$(A)",
        "../..",
        "\0",
        "😀",
        "1e400",
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def fields(kind: type[Message], depth: int = 0) -> st.SearchStrategy[Any]:
    """Documents with the right names, whose values are mostly of the right kind."""
    made = {field.json: value(field, depth) for field in schema.of(kind).fields}
    return st.fixed_dictionaries({}, optional=made)


def value(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if field.message:
        one = fields(field.message, depth + 1) if depth < 5 else st.just({})
    elif field.enum:
        one = st.sampled_from([*field.enum.__members__, *map(int, field.enum), 99, "NONSENSE"])
    else:
        one = {"bool": st.booleans(), "string": texts}.get(field.kind, st.integers(-2, 10**6) | texts)
    if field.repeated:
        one = st.lists(one, max_size=3)
    elif field.map:
        one = st.dictionaries(texts, one, max_size=3)
    return one if depth < 2 else one | anything


@MANY
@given(document=fields(CustomJob) | anything)
def test_documents(cloud: Cloud, document: Any):
    check(cloud.send("POST", "customJobs", json.dumps(document).encode("utf-8", "surrogatepass")))


@MANY
@given(body=st.binary(max_size=50))
@example(body=b'{"displayName": "\\ud800"}')
@example(body=b"[" * 100_000)
def test_bytes(cloud: Cloud, body: bytes):
    assert check(cloud.send("POST", "customJobs", body)) == 400
    check(cloud.send("POST", "/v2/entries:list", body))


@MANY
@given(changed=st.dictionaries(st.sampled_from(["displayName", "labels", "encryptionSpec"]), anything))
def test_what_is_kept_can_be_shown(cloud: Cloud, changed: dict[str, Any]):
    made = cloud.send("POST", "customJobs", jobs.job(**changed))
    if check(made) == 200:
        assert check(cloud.send("GET", f"/v1/{made.body['name']}?$alt=json;enum-encoding=int")) == 200


words = st.sampled_from(
    [
        "state", "display_name", "labels.", "labels.a", "create_time", "timestamp", "severity", "insertId",
        "resource.labels.job_id", "jsonPayload.x", "=", "!=", "<", ">", ":", "AND", "OR", "NOT", "-", "(", ")", "*",
        '"x"', '"a*b"', '"', "\\", "ERROR", "JOB_STATE_FAILED", "4", '"2014-10-02T15:01:23Z"',
    ]
)  # fmt: skip
filters = st.lists(words | st.text(max_size=3), max_size=9).map(" ".join)


@MANY
@given(text=filters)
@example(text="(" * 1000)
@example(text="NOT " * 5000)
@example(text="NOT (state=4 OR " * 49 + "state=4" + ")" * 49)
@example(text="state=4 OR " * 1800 + "state=4")
@example(text="severity=ERROR " * 1000)
@example(text='display_name:"' + "a*" * 5000 + '"')
@example(text='display_name="\0"')
@example(text='labels."\0":*')
def test_filters(cloud: Cloud, text: str):
    sent = quote(text.encode("utf-8", "surrogatepass"))
    check(cloud.send("GET", f"customJobs?pageSize=1&filter={sent}"))
    asked = {"resourceNames": ["projects/p1"], "filter": f'resource.labels.job_id="1" {text}'}
    check(cloud.send("POST", "/v2/entries:list", asked))


@MANY
@given(
    path=st.lists(texts | st.sampled_from(["customJobs", "operations", "1", ":cancel"]), max_size=4),
    query=texts,
)
def test_addresses(cloud: Cloud, path: list[str], query: str):
    where = "/".join(quote(part.encode("utf-8", "surrogatepass"), safe=":") for part in path)
    check(cloud.send("GET", f"/v1/{cloud.parent}/{where}?{quote(query, safe='=&;')}"))
    check(cloud.send("GET", f"/v1/projects/{where}/locations/x/customJobs"))


def check(answer: Answer) -> int:
    assert answer.status == 200 or answer.error[0] < 500 or answer.error[1] == "UNIMPLEMENTED", answer.body
    return answer.status
