"""No bytes make the door stumble: each is a REST call, or the caller's mistake."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import Invalid
from turnout.gateways.grpc import errors, transcode
from turnout.gateways.grpc.methods import Method, methods

METHODS = methods()


@pytest.mark.parametrize("name", METHODS)
@given(noise=st.binary(max_size=200), place=st.text(max_size=20))
def test_any_bytes(name: str, noise: bytes, place: str):
    method = METHODS[name]
    start = request_of(method, named(method, place))
    for request in (noise, start.SerializeToString() + noise):
        try:
            call = transcode.call(method, request)
        except Invalid:
            continue
        assert call.verb == method.verb
        assert call.target.startswith("/v1")
        assert call.target.isascii()
        assert not set(call.target) & set(" #\r\n\0")


def request_of(method: Method, name: str) -> Any:
    """Raises ValueError if the message has no such field."""
    outer, _, inner = method.field.partition(".")
    return method.request(**{outer: {inner: name} if inner else name})


def named(method: Method, part: str) -> str:
    return method.resource.replace("**", "a/b").replace("*", part or "x")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_names_a_field_that_its_message_has(name: str):
    method = METHODS[name]
    target = transcode.call(method, request_of(method, named(method, "1")).SerializeToString()).target
    assert "{" not in target
    assert transcode.answer(method, b"{}") == b""


@given(http=st.integers(400, 599), body=st.binary(max_size=300))
def test_any_answer_with_an_error_has_a_code(http: int, body: bytes):
    status = errors.of_answer(http, body)
    assert code_pb2.Code.Name(status.code)
    assert status.message


ERRORS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(told=st.fixed_dictionaries({"status": ERRORS, "message": ERRORS, "details": ERRORS}))
def test_any_document_with_an_error_is_survived(told: dict):
    status = errors.of_answer(400, json.dumps({"error": told | {"status": "NOT_FOUND"}}).encode())
    assert status.code in (code_pb2.NOT_FOUND, code_pb2.INVALID_ARGUMENT)
    errors.of_answer(400, json.dumps({"error": told}).encode())


@given(text=st.text(max_size=6000))
def test_what_is_sent_as_metadata_stays_small(text: str):
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": text[:3000]}
    body = json.dumps({"error": {"status": "NOT_FOUND", "message": text, "details": [info]}}).encode()
    status = errors.of_answer(404, body)
    assert status.ByteSize() * 4 / 3 + len(quote(status.message)) < 8000
