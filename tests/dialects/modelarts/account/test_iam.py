"""Authentication without a signature by a key: password tokens, temporary keys, the project of a region."""

from typing import Any

import httpx
import huaweicloudsdkmodelarts.v1 as sdk
import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.http.http_config import HttpConfig
from huaweicloudsdkcore.region.region import Region

from tests.dialects.modelarts.driving import Cloud, refused
from tests.running import KEY, Service
from turnout.access import Key


def login(service: Service, name: str, password: str, scope: dict[str, Any]) -> httpx.Response:
    user = {"name": name, "password": password, "domain": {"name": "anything"}}
    auth = {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}
    return httpx.post(f"{service.endpoint}/v3/auth/tokens", json={"auth": auth}, trust_env=False)


def by_token(service: Service, token: str, project: str = "default") -> Cloud:
    """The SDK has no mode for tokens: with an Authorization of its own it does not sign."""
    cloud = Cloud(service, Key("any", "thing", "x"), project)
    cloud.client.preset_headers = {"X-Auth-Token": token, "Authorization": "none"}
    return cloud


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    answer = login(service, KEY.id, KEY.secret, {"project": {"name": "cn-north-4"}})
    assert answer.status_code == 201
    return answer.headers["x-subject-token"]


def test_a_token_names_its_project_and_end(service: Service):
    shown = login(service, KEY.id, KEY.secret, {"project": {"name": "cn-north-4"}}).json()["token"]
    assert shown["project"]["id"] == "default"
    assert shown["project"]["name"] == "cn-north-4"
    assert shown["expires_at"] > shown["issued_at"]
    assert shown["user"]["name"] == KEY.id


def test_the_sdk_with_a_token(service: Service, token: str):
    assert by_token(service, token)("show_training_job_engines").total > 0


def test_a_token_that_is_signed_as_well(service: Service, token: str):
    cloud = Cloud(service, Key("any", "thing", "x"))
    cloud.client.preset_headers = {"X-Auth-Token": token}
    assert cloud("show_training_job_engines").total > 0


def test_a_token_is_for_its_project_only(service: Service, token: str):
    with refused("ModelArts.0210", 403, "belongs to the project 'default'"):
        by_token(service, token, "other")("show_training_job_engines")


def test_a_token_for_a_project_by_id(service: Service):
    answer = login(service, KEY.id, KEY.secret, {"project": {"id": "other"}})
    assert (
        by_token(service, answer.headers["x-subject-token"], "other")("show_training_job_engines").total > 0
    )


def test_a_token_that_is_none(service: Service):
    with refused("ModelArts.2784", 403, "X-Auth-Token: the token was not issued by this service"):
        by_token(service, "nonsense")("show_training_job_engines")


@pytest.mark.parametrize(
    ("name", "password"), [(KEY.id, "wrong"), ("nobody", ""), ("nobody", KEY.secret), ("", "")]
)
def test_a_wrong_password(service: Service, name: str, password: str):
    answer = login(service, name, password, {})
    assert answer.status_code == 401
    assert "x-subject-token" not in answer.headers
    assert answer.json()["error_code"] == "APIGW.0301"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"auth": {"identity": {"methods": ["totp"]}}}'])
def test_a_login_that_is_none(service: Service, body: bytes):
    answer = httpx.post(f"{service.endpoint}/v3/auth/tokens", content=body, trust_env=False)
    assert answer.status_code == 400


def test_the_sdk_finds_the_project_of_a_region(service: Service):
    credentials = BasicCredentials(KEY.id, KEY.secret).with_iam_endpoint(service.endpoint)
    client: Any = (
        sdk.ModelArtsClient.new_builder()
        .with_http_config(HttpConfig.get_default_config())
        .with_credentials(credentials)
        .with_region(Region("cn-north-4", service.endpoint))
        .build()
    )
    assert client.show_training_job_engines(sdk.ShowTrainingJobEnginesRequest()).total > 0


def test_temporary_keys(service: Service, token: str):
    body = {"auth": {"identity": {"methods": ["token"], "token": {"duration_seconds": 900}}}}
    answer = httpx.post(
        f"{service.endpoint}/v3.0/OS-CREDENTIAL/securitytokens",
        json=body,
        headers={"X-Auth-Token": token},
        trust_env=False,
    )
    assert answer.status_code == 201
    made = answer.json()["credential"]
    temporary = Key(made["access"], made["secret"], "default")
    assert Cloud(service, temporary, token=made["securitytoken"])("show_training_job_engines").total > 0
    with refused("APIGW.0301", 401):
        Cloud(service, temporary)("show_training_job_engines")
    with refused("APIGW.0301", 401):
        Cloud(service, Key(made["access"], "x", "default"), token=made["securitytoken"])(
            "show_training_job_engines"
        )
    with refused("ModelArts.2784", 403):
        Cloud(service, temporary, token=made["securitytoken"] + "0")("show_training_job_engines")
    with refused("ModelArts.0210", 403):
        Cloud(service, temporary, "other", made["securitytoken"])("show_training_job_engines")


def test_the_asynchronous_client(service: Service):
    client: Any = (
        sdk.ModelArtsAsyncClient.new_builder()
        .with_http_config(HttpConfig.get_default_config())
        .with_credentials(BasicCredentials(KEY.id, KEY.secret, "default"))
        .with_endpoint(service.endpoint)
        .build()
    )
    answer = client.show_training_job_engines_async(sdk.ShowTrainingJobEnginesRequest()).result()
    assert answer.total > 0
