"""Our errors as Google's clients read them."""

import pytest

from turnout import errors as ours
from turnout.dialects.vertex import errors


def kinds() -> list[type[ours.TurnoutError]]:
    return [kind for kind in ours.TurnoutError.__subclasses__() if kind.__module__ == ours.__name__]


@pytest.mark.parametrize(
    ("error", "http", "status"),
    [
        (ours.Invalid("x"), 400, "INVALID_ARGUMENT"),
        (ours.Busy("x"), 429, "RESOURCE_EXHAUSTED"),
        (ours.TooLarge("x"), 400, "INVALID_ARGUMENT"),
        (ours.Unauthenticated("x"), 403, "PERMISSION_DENIED"),
        (ours.Denied("x"), 403, "PERMISSION_DENIED"),
        (ours.NotFound("x"), 404, "NOT_FOUND"),
        (ours.AlreadyExists("x"), 409, "ALREADY_EXISTS"),
        (ours.WrongState("x"), 400, "FAILED_PRECONDITION"),
        (ours.Unavailable("x"), 429, "RESOURCE_EXHAUSTED"),
        (ours.Unsupported("x"), 501, "UNIMPLEMENTED"),
        (ours.TimedOut("x"), 504, "DEADLINE_EXCEEDED"),
        (ours.NotStored("x"), 503, "UNAVAILABLE"),
        (ours.Misconfigured("x"), 500, "INTERNAL"),
        (ours.TurnoutError("x"), 500, "INTERNAL"),
        (ours.Invalid("x", code="FAILED_PRECONDITION"), 400, "FAILED_PRECONDITION"),
    ],
    ids=repr,
)
def test_the_status(error: ours.TurnoutError, http: int, status: str):
    answer = errors.error_response(error)
    assert (answer.http, answer.status) == (http, status)
    assert answer.body["error"]["code"] == http
    assert answer.body["error"]["message"] == "x"


@pytest.mark.parametrize("kind", kinds())
def test_every_error_has_a_status(kind: type[ours.TurnoutError]):
    assert errors.error_response(kind("x")).status != "INTERNAL" or kind is ours.Misconfigured


def test_another_dialects_code_means_nothing_here():
    assert errors.error_response(ours.Invalid("x", code="ModelArts.2787")).status == "INVALID_ARGUMENT"


def test_the_details_name_the_field():
    (info, bad) = errors.error_response(ours.Invalid("displayName: wrong", field="displayName")).body[
        "error"
    ]["details"]
    assert info == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "INVALID_ARGUMENT",
        "domain": "aiplatform.googleapis.com",
        "metadata": {"service": "aiplatform.googleapis.com", "field": "displayName"},
    }
    assert bad["fieldViolations"] == [{"field": "displayName", "description": "displayName: wrong"}]
