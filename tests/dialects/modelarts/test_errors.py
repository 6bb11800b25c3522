"""Every error has a status, a code, a message and a solution that clients can read."""

import json

import pytest

from turnout import errors as ours
from turnout.dialects.modelarts import errors


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ours.Invalid("x"), 400, "ModelArts.2788"),
        (ours.Invalid("x", code="ModelArts.2765"), 400, "ModelArts.2765"),
        (ours.TooLarge("x"), 413, "APIGW.0201"),
        (ours.Busy("x"), 429, "APIGW.0308"),
        (ours.Unauthenticated("x"), 401, "APIGW.0301"),
        (ours.Denied("x"), 403, "ModelArts.0108"),
        (ours.NotFound("x"), 400, "ModelArts.2775"),
        (ours.NotFound("x", code="ModelArts.2890"), 404, "ModelArts.2890"),
        (ours.AlreadyExists("x"), 400, "ModelArts.2751"),
        (ours.WrongState("x"), 409, "ModelArts.2796"),
        (ours.Unavailable("x"), 400, "ModelArts.2815"),
        (ours.Unsupported("x"), 400, "ModelArts.2858"),
        (ours.TimedOut("x"), 500, "ModelArts.2952"),
        (ours.NotStored("x"), 500, "ModelArts.2952"),
        (ours.Misconfigured("x"), 500, "ModelArts.2950"),
    ],
)
def test_what_an_error_becomes(error: ours.TurnoutError, status: int, code: str):
    answer = errors.response(error)
    body = json.loads(bytes(answer.body))
    assert (answer.status_code, body["error_code"], body["error_msg"]) == (status, code, "x")
    assert body["error_solution"]
    assert answer.headers["content-type"] == "application/json"


def test_every_kind_of_error_has_a_code():
    kinds = [kind for kind in vars(ours).values() if isinstance(kind, type)]
    assert len(kinds) > 10
    for kind in kinds:
        assert errors.code_of(kind("x")).startswith(("ModelArts.", "APIGW."))
