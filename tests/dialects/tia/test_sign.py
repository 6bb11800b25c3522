"""Signatures: published and recorded examples, what real clients deviate in, and that nothing else gets through."""

import base64
import hashlib
import hmac
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import Key
from turnout.dialects.tia import form_parameters, sign
from turnout.errors import Invalid, TurnoutError, Unauthenticated

KEY = Key("AKIDEXAMPLE0000", "SECRETKEYEXAMPLE", "default", root=True)
NOW = 1527040800
HOST = "tia.tencentcloudapi.com"
BODY = (
    b'{"Name": "test-job", "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", '
    b'"Command": ["python"], "Args": ["mnist_saved_model.py", "cpu_model"]}'
)
QUERY = (
    b"Name=test-job&Cluster=ap-beijing&RuntimeVersion=tia-1.7.0"
    b"&Command.0=python&Args.0=mnist_saved_model.py&Args.1=cpu_model"
)
V3_POST = "bb13e3250dfabb66cef0c966dfa67361b16062b8929d460a40544c67b27033f0"
V3_GET = "08e237d657799f909f0041216c3abce6834b3fdb4d033015cb4742a51eb24074"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def find(key_id: str, key: Key = KEY) -> Key | None:
    return key if key_id == key.id else None


def headers(signature: str, content_type: str = JSON, host: str = HOST, timestamp: int = NOW, **more: str):
    scope = f"{KEY.id}/2018-05-23/{more.pop('service', 'tia')}/tc3_request"
    signed = more.pop("signed", "content-type;host")
    authorization = f"TC3-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={signature}"
    given = {"authorization": authorization, "content-type": content_type, "host": host}
    given |= {"x-tc-timestamp": str(timestamp)} | {
        name.replace("_", "-"): text for name, text in more.items()
    }
    return {name.encode(): value.encode() for name, value in given.items()}


def signature_v3(
    method: str = "POST",
    query: bytes = b"",
    payload: bytes = BODY,
    lines: str = f"content-type:{JSON}\nhost:{HOST}\n",
    signed: str = "content-type;host",
    service: str = "tia",
    secret: str = KEY.secret,
) -> str:
    """The documented recipe, step by step, as a client follows it."""
    digest = hashlib.sha256(payload).hexdigest()
    canonical = "\n".join([method, "/", query.decode(), lines, signed, digest])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"TC3-HMAC-SHA256\n{NOW}\n2018-05-23/{service}/tc3_request\n{hashed}"
    key = ("TC3" + secret).encode()
    for part in ("2018-05-23", service, "tc3_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


def v3(
    given: dict[bytes, bytes], method: str = "POST", query: bytes = b"", body: bytes = BODY, now: float = NOW
) -> Key:
    return sign.verify_v3(sign.read_v3(find, given, now), method, query, given, body)


def code(raised: pytest.ExceptionInfo[TurnoutError]) -> str:
    return raised.value.code


# What the SDK sends, and what Tencent's own pages compute.


def test_v3_post():
    assert v3(headers(V3_POST)) == KEY


def test_v3_get_signs_the_query_as_it_was_sent():
    assert v3(headers(V3_GET, FORM), "GET", QUERY, b"") == KEY


V1 = [
    ("Action", "CreateJob"),
    ("RequestClient", "SDK_PYTHON_3.0.1459"),
    ("Nonce", "11886"),
    ("Timestamp", str(NOW)),
    ("Version", "2018-02-26"),
    ("Region", "ap-beijing"),
    ("SecretId", KEY.id),
    ("Language", "zh-CN"),
    *form_parameters.pairs(QUERY),
]


@pytest.mark.parametrize(
    ("method", "algorithm", "signature"),
    [
        ("GET", "HmacSHA1", "xlBVdy3vyG31tLhpM1Erd7o81QU="),
        ("POST", "HmacSHA256", "Jl3IWMyojXZeW/kj2HvrZHH6PB5VHe8RYigUaQnCb08="),
    ],
)
def test_v1(method: str, algorithm: str, signature: str):
    pairs = [*V1, ("SignatureMethod", algorithm), ("Signature", signature)]
    assert sign.verify_v1(find, method, HOST, pairs, NOW) == KEY


def test_the_example_of_tencents_page_on_signature_v1():
    key = Key("AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE", "default")
    pairs = form_parameters.pairs(
        b"Action=DescribeInstances&InstanceIds.0=ins-09dx96dg&Limit=20&Nonce=11886&Offset=0&Region=ap-guangzhou"
        b"&SecretId=AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE&Timestamp=1465185768&Version=2017-03-12"
        b"&Signature=EliP9YW3pW28FpsEdkXt%2F%2BWcGeI%3D"
    )
    found = sign.verify_v1(lambda _: key, "GET", "cvm.tencentcloudapi.com", pairs, 1465185768)
    assert found == key


@pytest.mark.parametrize(
    ("ending", "signature"),
    [
        ("*******", "2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c"),
        ("EXAMPLE", "72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"),
    ],
)
def test_the_example_of_tencents_page_on_signature_v3(ending: str, signature: str):
    key = Key(f"AKIDz8krbsJ5yKBZQpn74WFkmLPx3{ending}", f"Gu5t9xGARNpq86cd98joQYCN3{ending}", "default")
    body = b'{"Limit": 1, "Filters": [{"Values": ["\\u672a\\u547d\\u540d"], "Name": "instance-name"}]}'
    given = {
        b"authorization": (
            f"TC3-HMAC-SHA256 Credential={key.id}/2019-02-25/cvm/tc3_request, "
            f"SignedHeaders=content-type;host, Signature={signature}"
        ).encode(),
        b"content-type": b"application/json; charset=utf-8",
        b"host": b"cvm.tencentcloudapi.com",
        b"x-tc-timestamp": b"1551113065",
    }
    assert sign.verify_v3(sign.read_v3(lambda _: key, given, 1551113065), "POST", b"", given, body) == key


# What real clients do differently.


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unsigned_payload(method: str):
    lines = f"content-type:{JSON}\nhost:{HOST}\n"
    query = QUERY if method == "GET" else b""
    signature = signature_v3(method, query, b"UNSIGNED-PAYLOAD", lines)
    given = headers(signature, x_tc_content_sha256="UNSIGNED-PAYLOAD")
    assert v3(given, method, query, b"anything") == KEY


@pytest.mark.parametrize("service", ["127", "localhost:8470", "cvm"])
def test_older_sdks_and_node_take_the_service_from_the_endpoint(service: str):
    assert v3(headers(signature_v3(service=service), service=service)) == KEY


@pytest.mark.parametrize("host", ["127.0.0.1:8470", "localhost:8470", "[::1]:8470"])
def test_node_signs_the_host_without_its_port(host: str):
    bare = host.removesuffix(":8470")
    signature = signature_v3(lines=f"content-type:{JSON}\nhost:{bare}\n")
    assert v3(headers(signature, host=host)) == KEY


def test_tccli_sends_and_signs_a_whole_address_as_the_host():
    host = "http://127.0.0.1:8470"
    signature = signature_v3(lines=f"content-type:{JSON}\nhost:{host}\n")
    assert v3(headers(signature, host=host)) == KEY


@pytest.mark.parametrize("spelt", ["application/json; charset=utf-8", "application/json; charset=UTF-8"])
@pytest.mark.parametrize("lower", [True, False])
def test_content_type_is_signed_in_lower_case_or_as_it_is(spelt: str, lower: bool):
    signature = signature_v3(lines=f"content-type:{spelt.lower() if lower else spelt}\nhost:{HOST}\n")
    assert v3(headers(signature, spelt)) == KEY


def test_more_headers_may_be_signed():
    signed = "content-type;host;x-tc-action"
    lines = f"content-type:{JSON}\nhost:{HOST}\nx-tc-action:createjob\n"
    signature = signature_v3(lines=lines, signed=signed)
    assert v3(headers(signature, signed=signed, x_tc_action="CreateJob")) == KEY


def signed_v1(pairs: list[tuple[str, str]], method: str = "GET", host: str = HOST) -> str:
    plain = f"{method}{host}/?" + "&".join(f"{name}={value}" for name, value in sorted(pairs))
    return base64.b64encode(hmac.new(KEY.secret.encode(), plain.encode(), hashlib.sha1).digest()).decode()


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_asynchronous_client_signs_another_spelling_of_truth_than_it_sends(value: str):
    signature = signed_v1([*V1, ("Debug", value.capitalize())])
    pairs = [*V1, ("Debug", value), ("Signature", signature)]
    assert sign.verify_v1(find, "GET", HOST, pairs, NOW) == KEY


def test_v1_with_a_host_without_its_port():
    pairs = [*V1, ("Signature", signed_v1(V1, host="127.0.0.1"))]
    assert sign.verify_v1(find, "GET", "127.0.0.1:8470", pairs, NOW) == KEY


def test_v1_signs_values_that_are_no_utf8_as_they_are():
    raw = b"&".join(f"{name}={value}".encode() for name, value in V1) + b"&Args.2=%ff%fe"
    joined = b"&".join(sorted([*(f"{name}={value}".encode() for name, value in V1), b"Args.2=\xff\xfe"]))
    mac = hmac.new(KEY.secret.encode(), b"GET" + HOST.encode() + b"/?" + joined, hashlib.sha1).digest()
    pairs = [*form_parameters.pairs(raw), ("Signature", base64.b64encode(mac).decode())]
    assert sign.verify_v1(find, "GET", HOST, pairs, NOW) == KEY


# What does not get through.


@pytest.mark.parametrize("off", [301, -301, 86400])
def test_a_clock_that_is_off_by_more_than_five_minutes(off: int):
    with pytest.raises(Unauthenticated) as raised:
        v3(headers(V3_POST), now=NOW + off)
    assert code(raised) == "AuthFailure.SignatureExpire"
    with pytest.raises(Unauthenticated) as raised:
        sign.verify_v1(find, "GET", HOST, [*V1, ("Signature", signed_v1(V1))], NOW + off)
    assert code(raised) == "AuthFailure.SignatureExpire"


@pytest.mark.parametrize("off", [300, -300])
def test_a_clock_that_is_off_by_five_minutes_is_fine(off: int):
    assert v3(headers(V3_POST), now=NOW + off) == KEY


SCOPE = f"{KEY.id}/2018-05-23/tia/tc3_request"
SIGNED = "SignedHeaders=content-type;host"


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "SKIP",
        "TC3-HMAC-SHA256",
        f"TC3-HMAC-SHA256 Credential={KEY.id}, {SIGNED}, Signature={V3_POST}",
        f"TC3-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host, Signature={V3_POST}",
        f"TC3-HMAC-SHA256 Credential={SCOPE}, {SIGNED}, Signature=bb",
        f"TC3-HMAC-SHA256 Credential={SCOPE}, {SIGNED}, Signature={V3_POST.upper()}",
    ],
)
def test_an_authorization_of_another_form(authorization: str):
    with pytest.raises(Unauthenticated) as raised:
        v3(headers(V3_POST) | {b"authorization": authorization.encode()})
    assert code(raised) == "AuthFailure.InvalidAuthorization"


def test_an_unknown_key():
    with pytest.raises(Unauthenticated) as raised:
        sign.read_v3(lambda _: None, headers(V3_POST), NOW)
    assert code(raised) == "AuthFailure.SecretIdNotFound"


def test_a_date_that_is_not_the_timestamps():
    given = headers(V3_POST)
    given[b"authorization"] = given[b"authorization"].replace(b"2018-05-23", b"2018-05-22")
    with pytest.raises(Unauthenticated) as raised:
        v3(given)
    assert code(raised) == "AuthFailure.SignatureFailure"


@pytest.mark.parametrize("timestamp", ["", "soon", "-5", "1" * 30, "١٢"])
def test_a_timestamp_that_is_none(timestamp: str):
    with pytest.raises(Invalid) as raised:
        v3(headers(V3_POST) | {b"x-tc-timestamp": timestamp.encode()})
    assert raised.value.field == "X-TC-Timestamp"


@pytest.mark.parametrize("name", ["SecretId", "Timestamp", "Nonce", "Signature"])
def test_v1_says_what_is_missing(name: str):
    pairs = [pair for pair in [*V1, ("Signature", "x")] if pair[0] != name]
    with pytest.raises(Invalid) as raised:
        sign.verify_v1(find, "GET", HOST, pairs, NOW)
    assert (code(raised), raised.value.field) == ("MissingParameter", name)


@pytest.mark.parametrize("nonce", ["x", "-1", "1.5"])
def test_v1_nonces_are_numbers(nonce: str):
    pairs = [pair for pair in V1 if pair[0] != "Nonce"] + [("Nonce", nonce), ("Signature", "x")]
    with pytest.raises(Invalid) as raised:
        sign.verify_v1(find, "GET", HOST, pairs, NOW)
    assert raised.value.field == "Nonce"


def flipped(data: bytes, at: int, bit: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


positions = st.tuples(st.integers(0, 10_000), st.integers(0, 7))


@given(positions)
def test_v3_with_any_bit_of_the_body_changed(where: tuple[int, int]):
    with pytest.raises(Unauthenticated):
        v3(headers(V3_POST), body=flipped(BODY, *where))


@given(positions)
def test_v3_with_any_bit_of_the_query_changed(where: tuple[int, int]):
    with pytest.raises(Unauthenticated):
        v3(headers(V3_GET, FORM), "GET", flipped(QUERY, *where), b"")


@given(positions)
def test_v3_with_any_bit_of_the_signature_changed(where: tuple[int, int]):
    given = headers(V3_POST)
    plain, signature = given[b"authorization"][:-64], given[b"authorization"][-64:]
    with pytest.raises(Unauthenticated):
        v3(given | {b"authorization": plain + flipped(signature, *where)})


@given(st.text(min_size=1).filter(lambda secret: secret != KEY.secret))
def test_v3_with_another_secret(secret: str):
    signature = signature_v3(secret=secret)
    with pytest.raises(Unauthenticated) as raised:
        v3(headers(signature))
    assert code(raised) == "AuthFailure.SignatureFailure"


@given(st.integers(0, len(V1) - 1), st.sampled_from(["name", "value"]), st.text(min_size=1, max_size=3))
def test_v1_with_any_parameter_changed(index: int, part: str, more: str):
    name, value = V1[index]
    changed = (name + more, value) if part == "name" else (name, value + more)
    pairs = [*V1[:index], changed, *V1[index + 1 :], ("Signature", signed_v1(V1))]
    with pytest.raises(TurnoutError):
        sign.verify_v1(find, "GET", HOST, pairs, NOW)


@given(
    st.lists(
        st.tuples(st.text("ABcd.09", min_size=1), st.text(max_size=20)), max_size=8, unique_by=lambda p: p[0]
    )
)
def test_v1_accepts_whatever_was_signed_right(more: list[tuple[str, str]]):
    pairs = [*V1, *((f"X{name}", value) for name, value in more)]
    signed = [*pairs, ("Signature", signed_v1(pairs))]
    assert form_parameters.pairs(urlencode(signed).encode()) == signed
    assert sign.verify_v1(find, "GET", HOST, signed, NOW) == KEY
