"""`turnout keys` against a real service."""

import json
import re
import urllib.request

import pytest
import yaml

from tests.running import KEY, Service, running


@pytest.fixture(autouse=True)
def as_root(service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")


def test_a_key_gives_access_to_its_project_until_it_is_revoked(run_turnout, run_tictl, monkeypatch):
    made = run_turnout("keys", "create", "--project=vision", "--label=Ann, laptop")
    assert made.out.startswith("Created a key for project vision. Save its secret: it is not shown again.\n")
    key = re.search(r"TURNOUT_KEY=(\S+)\n", made.out)
    assert key
    monkeypatch.setenv("TURNOUT_KEY", key[1])
    assert json.loads(run_tictl("user", "--output=json").out)["project"] == "vision"
    assert run_tictl("job", "create", "mine", "--command=true", "--wait").code == 0
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    assert "mine" not in run_tictl("job", "list").out

    key_id = key[1].partition(":")[0]
    root, listed = run_turnout("keys", "list", "--no-header").out.splitlines()
    assert root.split() == [KEY.id, "(all)"]
    assert re.match(rf"{key_id} +vision +20\d\d-\S+ \S+ +Ann, laptop$", listed)
    assert run_turnout("keys", "revoke", key_id).out == f"Revoked the key {key_id}.\n"
    monkeypatch.setenv("TURNOUT_KEY", key[1])
    refused = run_tictl("job", "list")
    assert (refused.code, refused.out) == (1, "")
    assert "no such key, or a wrong secret" in refused.err


def test_only_root_sees_keys(run_turnout, monkeypatch):
    key = json.loads(run_turnout("keys", "create", "--project=vision", "--output=json").out)
    shown = json.loads(run_turnout("keys", "list", "--output=json").out)
    assert yaml.safe_load(run_turnout("keys", "list", "--output=yaml").out) == shown
    assert all("secret" not in one for one in shown)
    assert {name: key[name] for name in ("id", "project", "root", "label")} == {
        "id": key["id"], "project": "vision", "root": False, "label": "",
    }  # fmt: skip
    gone = json.loads(run_turnout("keys", "create", "--project=vision", "--output=json").out)["id"]
    assert json.loads(run_turnout("keys", "revoke", gone, "--output=json").out) == {"revoked": [gone]}
    monkeypatch.setenv("TURNOUT_KEY", f"{key['id']}:{key['secret']}")
    for words in (["list"], ["create", "--project=other"], ["revoke", key["id"]]):
        outcome = run_turnout("keys", *words)
        assert (outcome.code, outcome.out) == (1, "")
        assert "only the root key may list" in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["create", "--project=a b"], "'a b' cannot be a project: it has 1 to 64 letters"),
        (["create", "--project=a", "--label=\a"], "label must be at most 200 printable characters"),
        (["revoke", "AKIDnobody"], "there is no key AKIDnobody"),
        (["revoke", KEY.id], "the root key cannot be revoked"),
        (["create"], "missing option '--project'"),
    ],
)
def test_invalid_arguments(run_turnout, words, complaint):
    outcome = run_turnout("keys", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err


def test_keys_outlive_the_service(run_turnout, run_tictl, monkeypatch):
    with running() as service:
        service.start()
        monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
        key = json.loads(run_turnout("keys", "create", "--project=vision", "--output=json").out)
        service.kill()
        service.start()
        monkeypatch.setenv("TURNOUT_KEY", f"{key['id']}:{key['secret']}")
        assert json.loads(run_tictl("user", "--output=json").out)["key"] == key["id"]


def test_a_service_account_file(run_turnout, tmp_path):
    file = tmp_path / "account.json"
    made = run_turnout("keys", "create", "--project=vision", "--google", f"--out={file}")
    assert made.out.endswith(f"export GOOGLE_APPLICATION_CREDENTIALS={file}\n")
    assert file.stat().st_mode & 0o777 == 0o600
    account = json.loads(file.read_text())
    key_id = account["client_email"].partition("@")[0]
    assert (account["type"], account["project_id"]) == ("service_account", "vision")
    assert account["private_key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    listed = {key["id"]: key for key in json.loads(run_turnout("keys", "list", "--output=json").out)}
    assert listed[key_id]["account"]["client_email"] == account["client_email"]
    assert json.loads(run_turnout("keys", "create", "--project=vision", "--google").out)["private_key"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--google", "--out=/"], "/ already exists"),
        (["--google", "--out=/nonexistent/x"], "/nonexistent is not a directory"),
        (["--out=x"], "--out works only with --google"),
    ],
)
def test_files_that_cannot_be_written(run_turnout, words, complaint):
    before = run_turnout("keys", "list").out
    outcome = run_turnout("keys", "create", "--project=vision", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err
    assert run_turnout("keys", "list").out == before


def test_a_token(run_turnout, service: Service, monkeypatch):
    token = run_turnout("token").out.strip()
    request = urllib.request.Request(
        f"{service.endpoint}/v1/projects/vision/locations/us-central1/customJobs",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {}
    assert "--seconds: 3601 is not from 1 to 3600" in run_turnout("token", "--seconds=3601").err
    monkeypatch.delenv("TURNOUT_KEY")
    refused = run_turnout("token", "--endpoint=http://elsewhere:1")
    assert (refused.code, refused.out) == (1, "")
    assert "set TURNOUT_KEY, or run `turnout login`" in refused.err
