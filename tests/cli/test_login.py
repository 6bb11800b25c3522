"""The stored login, its mode, and where key and endpoint come from."""

import json
import stat

import pytest

from turnout import config
from turnout.cli.login import DEFAULT_ENDPOINT, Login, connect, save, stored

ME = {"key": "me", "project": "default", "root": True}
CLUSTERS = {
    "clusters": [
        {"name": "ap-beijing", "shared": True, "engine": "local"},
        {"name": "cls-002", "region": "ap-shanghai", "shared": False, "engine": "local"},
    ]
}


@pytest.fixture
def service(recorder, monkeypatch):
    monkeypatch.delenv("TURNOUT_KEY")
    recorder.answers |= {"whoami": ME, "clusters": CLUSTERS}
    return recorder


def login_file():
    return config.config_home() / "login.json"


def test_login_checks_the_key_and_stores_it_with_mode_0600(service, run_tictl):
    outcome = run_tictl("login", "--si", "me", "--sk=secret", "--region=ap-shanghai", "--cluster=cls-002")
    assert outcome == (0, "user logged in with secret id `me`\n", "")
    assert ("whoami", {}) in service.calls
    assert json.loads(login_file().read_text()) == {
        "endpoint": service.endpoint,
        "secret_id": "me",
        "secret_key": "secret",
        "region": "ap-shanghai",
        "cluster": "cls-002",
    }
    assert stat.S_IMODE(login_file().stat().st_mode) == 0o600
    assert [path.name for path in login_file().parent.iterdir()] == ["login.json"]


def test_a_wrong_key_is_not_stored(service, run_tictl):
    service.answers["whoami"] = {"error": {"code": "Unauthenticated", "message": "the token does not fit"}}
    outcome = run_tictl("login", "--si=me", "--sk=wrong")
    assert (outcome.code, outcome.out) == (1, "")
    assert "the token does not fit" in outcome.err
    assert not login_file().exists()


def test_an_unknown_cluster_is_not_stored(service, run_tictl):
    outcome = run_tictl("login", "--si=me", "--sk=secret", "--cluster=cls-02")
    assert outcome == (1, "", "tictl: there is no cluster 'cls-02'; did you mean cls-002?\n")
    assert not login_file().exists()


def test_login_without_a_service_is_an_error(run_tictl):
    outcome = run_tictl("login", "--si=me", "--sk=secret", "--endpoint=http://127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("tictl: cannot reach http://127.0.0.1:1 (connection refused)")
    assert not login_file().exists()


def test_login_without_a_key_says_how_to_give_one(service, run_tictl):
    outcome = run_tictl("login")
    assert outcome == (
        1,
        "",
        "tictl: give the key with --si <id> --sk <secret>, or TURNOUT_KEY=<id>:<secret>\n",
    )


def test_login_takes_the_key_from_the_variable(service, run_tictl, monkeypatch):
    monkeypatch.setenv("TURNOUT_KEY", "me:secret")
    assert run_tictl("login").code == 0
    assert stored().secret_id == "me"


def test_info_shows_everything_but_the_secret(service, run_tictl):
    assert run_tictl("login", "--info").err.startswith("tictl: there is no login: run `tictl login ")
    run_tictl("login", "--si=me", "--sk=secret")
    assert run_tictl("login", "--info").out == (
        f"user logged in with secret id `me`\nThe endpoint is `{service.endpoint}`\n"
        "The default cluster is `ap-beijing` `ap-beijing`\n"
    )
    assert "secret" not in run_tictl("login", "--info", "--output=json").out.replace("secret_id", "")


def test_logout_removes_the_login(service, run_tictl):
    run_tictl("login", "--si=me", "--sk=secret")
    assert run_tictl("logout").out == "user logged out\n"
    assert not login_file().exists()
    assert run_tictl("logout") == (0, "there was no login\n", "")


def test_user(service, run_tictl):
    assert run_tictl("user").out == "NAME    ISOWNER    MAIL    PHONE\nme      true\n"
    assert run_tictl("user", "--no-header").out == "me    true\n"
    assert json.loads(run_tictl("user", "--output=json").out) == ME


def test_clusters(service, run_tictl):
    assert run_tictl("cluster", "list").out == (
        "REGION         CLUSTER ID\nap-shanghai    cls-002\nap-beijing     ap-beijing\n"
    )
    assert run_tictl("cluster", "list", "-d").out == "The default cluster is `ap-beijing` `ap-beijing`\n"
    switched = run_tictl("cluster", "switch", "-c", "cls-002")
    assert switched.out == "The default cluster is set as `ap-shanghai: cls-002`\n"
    assert run_tictl("cluster", "list", "--default").out == "The default cluster is `ap-shanghai` `cls-002`\n"


def test_switch_asks_only_on_a_terminal(service, run_tictl):
    outcome = run_tictl("cluster", "switch")
    assert outcome == (1, "", "tictl: name a cluster with -c <cluster>; `tictl cluster list` shows them\n")


def test_where_endpoint_and_key_come_from(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "root-key").write_text("root:root-secret\n")
    assert connect().endpoint == DEFAULT_ENDPOINT
    assert connect().key == ("root", "root-secret")
    assert connect("http://elsewhere:8470").key.id == "nobody", "the root key is for this machine's service"
    assert connect("http://127.0.0.1:9").key.id == "nobody", "another service on this machine"
    (tmp_path / "data" / "endpoint").write_text("http://127.0.0.1:9")
    assert connect("http://localhost:9").key.id == "root"
    assert connect("http://127.0.0.2:9").key.id == "nobody"
    assert connect().key.id == "nobody", "the service of the data directory was started on another port"
    (tmp_path / "data" / "endpoint").write_text("http://0.0.0.0:9")
    assert connect("http://127.0.0.2:9").key.id == "root"
    save(Login("http://127.0.0.1:2", "me", "secret"))
    assert (connect().endpoint, connect().key) == ("http://127.0.0.1:2", ("me", "secret"))
    monkeypatch.setenv("TURNOUT_ENDPOINT", "http://127.0.0.1:3")
    monkeypatch.setenv("TURNOUT_KEY", "you:yours")
    assert (connect().endpoint, connect().key) == ("http://127.0.0.1:3", ("you", "yours"))
    assert connect("http://127.0.0.1:4").endpoint == "http://127.0.0.1:4"


def test_a_damaged_login_says_what_to_do(run_tictl):
    login_file().parent.mkdir(parents=True)
    login_file().write_text("{")
    outcome = run_tictl("job", "list")
    assert outcome.code == 1
    assert "remove it and run `tictl login` again" in outcome.err
