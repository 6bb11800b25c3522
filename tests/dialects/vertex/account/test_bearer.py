"""Authentication with the tokens that Google's own library makes."""

import base64
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import google.auth
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from google.api_core.exceptions import Forbidden
from google.auth import crypt, jwt
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from tests.dialects.vertex.driving import LOCATION, PROJECT, Cloud
from tests.running import KEY, Service, python_path, running
from turnout.access import Key, make_session_token, make_token
from turnout.dialects.vertex.resource_names import project_number

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
PARENT = f"projects/{PROJECT}/locations/{LOCATION}"


@pytest.fixture(scope="module")
def account(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account's file, as its user gets it from root."""
    file = tmp_path_factory.mktemp("account") / "account.json"
    turnout(service, "keys", "create", "--project", PROJECT, "--google", "--out", str(file))
    return file


def turnout(service: Service, *words: str) -> str:
    env = {
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "HOME": "/nonexistent",
    }
    command = [sys.executable, "-m", "turnout.cli.main", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def exchanging(file: Path) -> service_account.Credentials:
    """Credentials that exchange what they sign for a token, as accounts of Google's universe do."""
    info = json.loads(file.read_text()) | {"universe_domain": "googleapis.com"}
    return service_account.Credentials.from_service_account_info(info, scopes=SCOPES)


def list_jobs(cloud: Cloud, credentials: Any, parent: str = PARENT) -> list[Any]:
    return list(cloud.client(credentials).list_custom_jobs(parent=parent))


class TestTokens:
    def test_from_the_command_line(self, cloud: Cloud, service: Service):
        token = turnout(service, "token", "--seconds", "60").strip()
        assert cloud.send("GET", "customJobs", headers={"Authorization": f"Bearer {token}"}).status == 200

    def test_of_a_session_are_for_one_project(self, cloud: Cloud):
        headers = {"Authorization": f"Bearer {make_session_token(KEY, PROJECT, time.time())}"}
        assert cloud.send("GET", "customJobs", headers=headers).status == 200
        other = cloud.send("GET", f"/v1/projects/p2/locations/{LOCATION}/customJobs", headers=headers)
        assert other.error[:2] == (403, "PERMISSION_DENIED")

    @pytest.mark.parametrize(
        ("authorization", "message"),
        [
            (None, "`turnout token` prints"),
            ("Basic abc", "`turnout token` prints"),
            ("Bearer ", "`turnout token` prints"),
            ("Bearer nonsense", "must have the form tk1."),
            ("Bearer ey.x.y", "the JWT cannot be read"),
            (
                "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJhIiwiZXhwIjoxLCJpYXQiOjF9.",
                "signed with RS256, not none",
            ),
            ("Bearer ts1.a.b.1.c", "the token is not valid"),
            pytest.param(
                f"Bearer {make_token(Key(KEY.id, 'wrong', 'x'), time.time())}",
                "no such key, or a wrong secret",
                id="wrong secret",
            ),
            pytest.param(f"Bearer {make_token(KEY, time.time() - 7200)}", "has expired", id="expired"),
        ],
    )
    def test_that_are_none_get_403(self, cloud: Cloud, authorization: str | None, message: str):
        """Not 401, upon which Google's clients look for another token and hide what was said."""
        headers = {"Authorization": authorization} if authorization else {}
        status, code, told = cloud.send("GET", "customJobs", headers=headers).error
        assert (status, code) == (403, "PERMISSION_DENIED")
        assert message in told

    def test_anonymous_callers_hear_why(self, cloud: Cloud):
        with pytest.raises(Forbidden, match="missing required authentication credential"):
            list_jobs(cloud, AnonymousCredentials())


class TestServiceAccounts:
    def test_sign_for_themselves(self, cloud: Cloud, account: Path):
        credentials = service_account.Credentials.from_service_account_file(account, scopes=SCOPES)
        signing = credentials.with_always_use_jwt_access(True)
        list_jobs(cloud, signing)
        assert str(signing.token).startswith("ey") or str(signing.token) == "None"

    def test_get_a_token_for_what_they_signed(self, cloud: Cloud, account: Path):
        credentials = exchanging(account)
        credentials.refresh(Request())
        assert str(credentials.token).startswith("tk1.")
        assert not credentials.expired
        headers = {"Authorization": f"Bearer {credentials.token}"}
        assert cloud.send("GET", "customJobs", headers=headers).status == 200

    def test_are_the_default_credentials(self, cloud: Cloud, account: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
        credentials, project = google.auth.default(scopes=SCOPES)
        assert project == PROJECT
        list_jobs(cloud, credentials)

    def test_may_not_leave_their_project(self, cloud: Cloud, account: Path):
        credentials = service_account.Credentials.from_service_account_file(account, scopes=SCOPES)
        with pytest.raises(Forbidden, match="the token is for the project p1"):
            list_jobs(cloud, credentials, f"projects/p2/locations/{LOCATION}")

    def test_open_buckets_too(self, cloud: Cloud, account: Path):
        credentials = service_account.Credentials.from_service_account_file(account, scopes=SCOPES)
        credentials.refresh(Request())
        audiences = ("https://storage.googleapis.com/", "https://storage.turnout.invalid/")
        for token in (credentials.token, *(signed(account, aud=audience) for audience in audiences)):
            headers = {"Authorization": f"Bearer {token}"}
            assert cloud.send("GET", "/storage/v1/b?project=p1", headers=headers).status == 200

    def test_end_with_their_key(self, service: Service, cloud: Cloud, tmp_path: Path):
        file = tmp_path / "short.json"
        turnout(service, "keys", "create", "--project", PROJECT, "--google", "--out", str(file))
        headers = {"Authorization": f"Bearer {signed(file)}"}
        assert cloud.send("GET", "customJobs", headers=headers).status == 200
        turnout(service, "keys", "revoke", json.loads(file.read_text())["client_email"].partition("@")[0])
        assert "key was revoked" in cloud.send("GET", "customJobs", headers=headers).error[2]
        with pytest.raises(RefreshError, match="invalid_grant"):
            exchanging(file).refresh(Request())

    def test_outlive_the_service(self, tmp_path: Path):
        with running() as service:
            service.start()
            turnout(
                service, "keys", "create", "--project", PROJECT, "--google", "--out", str(tmp_path / "a.json")
            )
            service.kill()
            service.start()
            headers = {"Authorization": f"Bearer {signed(tmp_path / 'a.json')}"}
            assert Cloud(service).send("GET", "customJobs", headers=headers).status == 200

    @pytest.mark.parametrize(
        ("claims", "message"),
        [
            ({"exp": 1}, "has expired"),
            ({"exp": time.time() + 90_000}, "is valid for more than 3600 s"),
            ({"iat": time.time() + 1000, "exp": time.time() + 2000}, "a clock is wrong"),
            ({"aud": "https://evil.example/"}, "the JWT's aud must be"),
            ({"aud": ""}, "the JWT's aud must be"),
            ({"aud": "https://[::1/"}, "the JWT's aud must be"),
            ({"aud": "https://aiplatform.googleapis.com.evil.example/"}, "the JWT's aud must be"),
            ({"aud": "http://aiplatform.googleapis.com/"}, "the JWT's aud must be"),
            ({"sub": "someone@else"}, "the JWT's sub must be its iss"),
            ({"iss": "AKIDnobody@p1.iam.gserviceaccount.com"}, "no such service account"),
            ({"iss": f"{KEY.id}@default.iam.gserviceaccount.com"}, "no such service account"),
            ({"iss": 5}, "the JWT cannot be read"),
        ],
    )
    def test_cannot_claim_anything(self, cloud: Cloud, account: Path, claims: dict[str, Any], message: str):
        headers = {"Authorization": f"Bearer {signed(account, **claims)}"}
        status, code, told = cloud.send("GET", "customJobs", headers=headers).error
        assert (status, code) == (403, "PERMISSION_DENIED")
        assert message in told

    @pytest.mark.parametrize("algorithm", ["none", "HS256", "RS512", "rs256"])
    def test_sign_in_one_way_only(self, cloud: Cloud, account: Path, algorithm: str):
        """Above all not with the public half of the key as a secret that both know."""
        private = json.loads(account.read_text())["private_key"].encode()
        public = load_pem_private_key(private, None).public_key()
        for secret in (
            b"",
            public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        ):
            _, claims, _ = signed(account).split(".")
            said = f"{spelt(json.dumps({'alg': algorithm, 'typ': 'JWT'}).encode())}.{claims}"
            proof = hmac.digest(secret, said.encode(), "sha256") if secret else b""
            headers = {"Authorization": f"Bearer {said}.{spelt(proof)}"}
            told = cloud.send("GET", "customJobs", headers=headers).error
            assert told == (403, "PERMISSION_DENIED", f"the JWT must be signed with RS256, not {algorithm}")

    def test_name_their_own_key_or_none(self, cloud: Cloud, account: Path):
        info = json.loads(account.read_text())
        for kid, status in ((info["private_key_id"], 200), (None, 200), ("0" * 40, 403)):
            signer = crypt.RSASigner.from_string(info["private_key"], kid)
            token = jwt.encode(signer, claims_of(info)).decode()
            headers = {"Authorization": f"Bearer {token}"}
            assert cloud.send("GET", "customJobs", headers=headers).status == status

    def test_may_call_their_project_by_its_number(self, cloud: Cloud, account: Path):
        credentials = service_account.Credentials.from_service_account_file(account, scopes=SCOPES)
        list_jobs(cloud, credentials, f"projects/{project_number(PROJECT)}/locations/{LOCATION}")
        with pytest.raises(Forbidden):
            list_jobs(cloud, credentials, f"projects/{project_number('p2')}/locations/{LOCATION}")

    def test_another_key_does_not_fit(self, service: Service, cloud: Cloud, account: Path, tmp_path: Path):
        file = tmp_path / "other.json"
        turnout(service, "keys", "create", "--project", "p2", "--google", "--out", str(file))
        other, own = json.loads(file.read_text()), json.loads(account.read_text())
        mixed = tmp_path / "mixed.json"
        mixed.write_text(json.dumps(own | {"private_key": other["private_key"]}))
        headers = {"Authorization": f"Bearer {signed(mixed)}"}
        assert "signature does not match" in cloud.send("GET", "customJobs", headers=headers).error[2]


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "unsupported_grant_type"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "invalid_request"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "x"}, "invalid_grant"),
    ],
)
def test_what_the_token_endpoint_refuses(cloud: Cloud, form: dict[str, str], error: str):
    answer = cloud.send("POST", "/token", urlencode(form).encode(), headers={})
    assert answer.status == 400
    assert answer.body["error"] == error
    assert cloud.send("GET", "/token").body["error"] == "invalid_request"


@pytest.fixture(scope="module")
def open_house() -> Iterator[Cloud]:
    with running() as service:
        yield Cloud(service.start("--no-auth"))


def test_without_auth_nobody_needs_credentials(open_house: Cloud):
    assert list_jobs(open_house, AnonymousCredentials()) == []
    assert open_house.send("POST", "customJobs", {}, headers={}).error[1] == "INVALID_ARGUMENT"


def signed(account: Path, **claims: Any) -> str:
    """What the account signs to be let in, with some claims of it changed."""
    info = json.loads(account.read_text())
    credentials = service_account.Credentials.from_service_account_info(info)
    token = jwt.encode(credentials._signer, claims_of(info) | claims)
    return token.decode() if isinstance(token, bytes) else token


def claims_of(info: Any) -> dict[str, Any]:
    now, email = int(time.time()), info["client_email"]
    return {
        "iss": email,
        "sub": email,
        "iat": now,
        "exp": now + 3600,
        "aud": "https://aiplatform.googleapis.com/",
    }


def spelt(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_the_private_key_stays_with_its_user(service: Service, account: Path):
    assert account.stat().st_mode & 0o777 == 0o600
    secret = json.loads(account.read_text())["private_key"].splitlines()[-5]
    for file in service.data.glob("turnout.db*"):
        assert base64.b64decode(secret) not in file.read_bytes()
