"""Signatures: vectors that Huawei's own signer made, and forgeries."""

from datetime import UTC, datetime

import pytest

from turnout.access import Key
from turnout.dialects.modelarts.account.sign import SignedRequest, verify
from turnout.errors import Unauthenticated

KEY = Key("AKEXAMPLE", "SKEXAMPLE", "p1")
NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
NAMES = "content-type;host;user-agent;x-project-id;x-sdk-date"
CREATE = "131573f8986a724e4bc1acba83a8c9fe1add02dfb76754a9c297a92b2e4e7f52"
BODY = b'{"kind": "job"}'


def find(access: str) -> Key | None:
    return KEY if access == KEY.id else None


def signed(method: str, target: str, signature: str, body: bytes = b"", **headers: str) -> SignedRequest:
    path, _, query = target.partition("?")
    kind = "application/json;charset=utf-8" if body else "application/json"
    sent = {
        "authorization": f"SDK-HMAC-SHA256 Access=AKEXAMPLE, SignedHeaders={NAMES}, Signature={signature}",
        "content-type": kind,
        "host": "127.0.0.1:8080",
        "user-agent": "ua",
        "x-project-id": "p1",
        "x-sdk-date": "20260101T000000Z",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return SignedRequest(
        method, path.encode(), query.encode(), {name.encode(): v.encode() for name, v in sent.items()}, body
    )


def create(signature: str = CREATE, body: bytes = BODY, **headers: str) -> SignedRequest:
    return signed("POST", "/v2/p1/training-jobs", signature, body, **headers)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(create(), id="with a body"),
        pytest.param(
            signed(
                "GET",
                "/v2/p1/training-jobs/j1/events?limit=10&offset=0&pattern=a%20b%2F%2B%26~",
                "1599b98bde87de65d7f022afe57e91ccda6df2cd6c07bfe0ebad0878ac910128",
            ),
            id="with a query",
        ),
        pytest.param(
            signed(
                "GET",
                "/v2/p1/training-jobs/a%20b%2Fc/tasks/worker-0/logs/preview",
                "17c78548b4f215e51e47fb5ed1901f37506980b60a78100f3b5dbd22e172fa4e",
            ),
            id="with an encoded slash",
        ),
    ],
)
def test_what_the_sdk_signs(request_: SignedRequest):
    assert verify(find, request_, NOW) == KEY


def test_the_order_of_a_query_does_not_matter():
    request = signed(
        "GET",
        "/v2/p1/training-jobs/j1/events?pattern=a%20b%2F%2B%26~&offset=0&limit=10",
        "1599b98bde87de65d7f022afe57e91ccda6df2cd6c07bfe0ebad0878ac910128",
    )
    assert verify(find, request, NOW) == KEY


@pytest.mark.parametrize("off", [-899, 899])
def test_a_clock_may_be_off_by_fifteen_minutes(off: int):
    assert verify(find, create(), NOW + off) == KEY


@pytest.mark.parametrize("off", [-901, 901])
def test_a_clock_that_is_off_by_more(off: int):
    with pytest.raises(Unauthenticated, match="901 s away") as caught:
        verify(find, create(), NOW + off)
    assert caught.value.code == "APIGW.0303"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (create(body=b'{"kind": "jab"}'), "does not match"),
        (create(signature="0" * 64), "does not match"),
        (create(signature="ü"), "does not match"),
        (create(host="127.0.0.1:8081"), "does not match"),
        (create(x_project_id="p2"), "does not match"),
        (create(x_sdk_date="yesterday"), "X-Sdk-Date must be"),
        (create(x_sdk_date="20260230T000000Z"), "X-Sdk-Date must be"),
        (create(x_sdk_content_sha256="UNSIGNED-PAYLOAD"), "X-Sdk-Content-Sha256"),
        (create(authorization="Bearer x"), "Authorization must be"),
        (create(authorization="SDK-HMAC-SHA256 Access=AKEXAMPLE"), "Authorization must be"),
        (
            create(authorization=f"SDK-HMAC-SHA256 Access=a, SignedHeaders={NAMES}, Signature=0"),
            "no access key 'a'",
        ),
        (
            create(authorization="SDK-HMAC-SHA256 Access=AKEXAMPLE, SignedHeaders=host, Signature=0"),
            "must name host and x-sdk-date",
        ),
    ],
)
def test_what_does_not_pass(request_: SignedRequest, why: str):
    with pytest.raises(Unauthenticated, match=why) as caught:
        verify(find, request_, NOW)
    assert caught.value.code == "APIGW.0301"
