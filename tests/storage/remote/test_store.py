"""From the settings to a store, and what its refusals mean."""

import json
from pathlib import Path

import msgspec
import pytest

from turnout.errors import Denied, Misconfigured, NotFound, TimedOut
from turnout.storage.remote.errors import explain
from turnout.storage.remote.settings import RemoteBuckets, RemoteSettings, check, with_credentials
from turnout.storage.remote.store import open_store

HERE = "[storage.buckets.x]"


def test_a_bucket_s_own_table_wins_over_its_scheme_s() -> None:
    own, scheme = (
        RemoteSettings(url="s3://real/some/prefix"),
        RemoteSettings(endpoint="https://cos.example.com"),
    )
    assert RemoteBuckets({"mine": own}, {"cos": scheme}).settings("cos", "mine") is own
    assert RemoteBuckets({}, {"cos": scheme}).settings("cos", "other") == RemoteSettings(
        url="cos://other", endpoint="https://cos.example.com"
    )
    assert RemoteBuckets({}, {"cos": RemoteSettings(url="s3://")}).settings("cos", "other") == RemoteSettings(
        url="s3://other"
    )
    assert RemoteBuckets({}, {"cos": scheme}).settings("gs", "other") is None


@pytest.mark.parametrize(
    ("backing", "said"),
    [
        (RemoteSettings(url="ftp://x"), "must begin with one of s3://, gs://, cos://, obs://"),
        (RemoteSettings(url="s3://x", key="only"), "set both key and secret"),
        (RemoteSettings(url="cos://x"), "needs an endpoint or a region"),
        (RemoteSettings(url="s3://x", endpoint="example.com"), "must begin with https://"),
        (RemoteSettings(url="s3://x", endpoint="http://example.com"), "set allow_http = true"),
    ],
)
def test_settings_that_cannot_work(backing: RemoteSettings, said: str) -> None:
    with pytest.raises(Misconfigured) as error:
        check(backing, HERE)
    assert said in error.value.message
    assert error.value.message.startswith(HERE)


def test_http_is_fine_on_this_machine() -> None:
    check(RemoteSettings(url="s3://x", endpoint="http://127.0.0.1:9000"), HERE)
    check(RemoteSettings(url="s3://x", endpoint="http://localhost:9000"), HERE)


@pytest.mark.parametrize(
    ("backing", "endpoint"),
    [
        (RemoteSettings(url="cos://b-1", region="ap-guangzhou"), "https://b-1.cos.ap-guangzhou.myqcloud.com"),
        (RemoteSettings(url="obs://b", region="cn-north-4"), "https://b.obs.cn-north-4.myhuaweicloud.com"),
        (RemoteSettings(url="s3://b", endpoint="https://s3.example.com/"), "https://s3.example.com"),
        (RemoteSettings(url="s3://b", endpoint="https://e.com", virtual_hosted=True), "https://b.e.com"),
    ],
)
def test_where_requests_go(backing: RemoteSettings, endpoint: str) -> None:
    store = open_store(msgspec.structs.replace(backing, anonymous=True))
    assert store.config.get("endpoint") == endpoint


def test_secrets_stay_secret() -> None:
    backing = RemoteSettings(url="s3://x", key="the-key", secret="the-secret", token="the-token")
    shown = f"{backing!r} {open_store(backing)!r}"
    assert "the-" not in shown


def test_a_key_file_travels_as_its_content(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text(json.dumps({"type": "service_account"}))
    assert with_credentials(RemoteSettings(url="gs://x", key=str(file)), {}).secret == file.read_text()
    around = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    assert with_credentials(RemoteSettings(url="gs://x"), around).secret == file.read_text()
    assert with_credentials(RemoteSettings(url="s3://x"), around) == RemoteSettings(url="s3://x")
    with pytest.raises(Misconfigured, match="cannot be read"):
        with_credentials(RemoteSettings(url="gs://x", key=str(tmp_path / "none.json")), {})


@pytest.mark.parametrize(
    ("text", "kind", "retryable"),
    [
        ("non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>", Denied, False),
        ("non-2xx status code: 404 Not Found: <Code>NoSuchBucket</Code>", NotFound, False),
        ("non-2xx status code: 429 Too Many Requests", TimedOut, True),
        ("non-2xx status code: 503 Slow Down: <Code>SlowDown</Code>", TimedOut, True),
        ("Error performing GET http://h:1/b/k: HttpError {\n kind: Connect,", TimedOut, True),
        ("HttpError { kind: Connect, source: invalid peer certificate", Misconfigured, False),
    ],
)
def test_what_refusals_mean(text: str, kind: type[Exception], retryable: bool) -> None:
    found = explain(RuntimeError(text), "cos://mine/key")
    assert isinstance(found.error, kind)
    assert found.retryable is retryable
    assert found.error.message.startswith("cos://mine/key: ")
