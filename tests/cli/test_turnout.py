"""`turnout` commands that need no service: wrong settings, and the doctor."""

import json
import os
import re
import socket
import sys

import pytest

from tests.running import KEY, reachable_directory


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--no-auth", "--host=0.0.0.0"], "--no-auth works on loopback only, not on 0.0.0.0"),
        (
            ["--config=/nowhere/turnout.toml"],
            "/nowhere/turnout.toml cannot be read: No such file or directory",
        ),
        (["--port=eighty"], "turnout: --port: 'eighty' is not a whole number; see"),
        (["--port=80000"], "turnout: --port: 80000 is not from 0 to 65535; see"),
        (
            ["--host=nohost.invalid", "--data=/srv/none/data"],
            "nohost.invalid is not known; give --host an address of this machine",
        ),
        (
            ["--host=192.0.2.1", "--data=/srv/none/data"],
            "192.0.2.1 is not an address of this machine; give --host one that is",
        ),
        (["--prot=80"], "no such option: --prot"),
    ],
)
def test_serve_says_what_is_wrong_in_one_line(run_turnout, words, complaint):
    outcome = run_turnout("serve", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_misspelt_setting(run_turnout, tmp_path):
    file = tmp_path / "turnout.toml"
    file.write_text("[server]\nprot = 80\n")
    outcome = run_turnout("serve", "--config", str(file))
    assert outcome.err == f"turnout: {file}: [server] has no setting prot; did you mean port?\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of an ordinary user's service are that user's")
def test_a_data_directory_that_the_jobs_user_cannot_reach(run_turnout, tmp_path):
    outcome = run_turnout("serve", "--port=0", f"--data={tmp_path}/data")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("turnout: jobs run as other users, who cannot enter")
    assert f" to reach {tmp_path}/data: choose another" in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failed_start_leaves_nothing_behind(run_turnout):
    with reachable_directory() as place, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run_turnout("serve", f"--port={port}", f"--data={place}/data")
        assert outcome.err.startswith(f"turnout: cannot listen on 127.0.0.1:{port}: the port is taken")
        assert "--port" in outcome.err
        assert list(place.iterdir()) == []


def test_explain_without_a_service(run_turnout):
    outcome = run_turnout("explain", "first", "--endpoint=http://127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("turnout: cannot reach http://127.0.0.1:1 (connection refused)")


def test_version(run_turnout):
    assert run_turnout("version").out.startswith("turnout 0.")
    assert json.loads(run_turnout("version", "--output=json").out)["turnout"].startswith("0.")


def test_the_doctor_runs_every_check(run_turnout, monkeypatch):
    monkeypatch.setenv("TURNOUT_PORT", "0")
    monkeypatch.setenv("TURNOUT_GPUS", "3")
    outcome = run_turnout("doctor", "--output=json")
    findings = json.loads(outcome.out)
    assert findings["GPUs"] == {
        "status": "ok",
        "found": "3 simulated, as set by [engines.local] gpus",
        "advice": "",
        "needed": False,
    }
    assert findings["database"]["found"].startswith("SQLite 3.")
    assert {
        "versions",
        "data directory",
        "job users",
        "interpreter",
        "bubblewrap",
        "cgroups",
    } <= findings.keys()
    assert {finding["status"] for finding in findings.values()} <= {"ok", "warn", "missing"}


def test_the_doctor_tries_the_interpreter_of_every_runtime(run_turnout, tmp_path):
    file = tmp_path / "turnout.toml"
    file.write_text(
        '[runtimes."tia-1.7.0"]\npython = "/nowhere/python"\n[runtimes.host]\npython = "/usr/bin/python3"\n'
    )
    outcome = run_turnout("doctor", f"--config={file}", "--output=json")
    findings = json.loads(outcome.out)
    assert outcome.code == 1
    assert findings["runtime tia-1.7.0"]["found"] == (
        "[runtimes.\"tia-1.7.0\"] python = '/nowhere/python' does not exist"
    )
    assert findings["runtime host"]["found"].endswith("(/usr/bin/python3)")


def test_the_doctor_recognizes_a_turnout_service_on_the_port(run_turnout, service, recorder, monkeypatch):
    recorder.answers["/healthz"] = b"ok\n"
    for port, status in ((service.port, "ok"), (int(recorder.endpoint.rpartition(":")[2]), "warn")):
        monkeypatch.setenv("TURNOUT_PORT", str(port))
        found = json.loads(run_turnout("doctor", "--output=json").out)["address"]
        assert found["status"] == status, found


def test_the_doctor_asks_the_service_that_the_commands_talk_to(run_turnout, service, monkeypatch):
    def found() -> dict[str, str]:
        return json.loads(run_turnout("doctor", "--output=json").out)["endpoint"]

    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    assert "needs a key" in found()["advice"]
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    assert found()["found"] == (
        f"{service.endpoint} (TURNOUT_ENDPOINT) answers; key {KEY.id} of project default, root"
    )
    monkeypatch.setenv("TURNOUT_KEY", "no colon")
    assert (found()["status"], found()["advice"]) == ("warn", "TURNOUT_KEY must be <id>:<secret>")
    monkeypatch.setenv("TURNOUT_KEY", "a:b")
    monkeypatch.setenv("TURNOUT_ENDPOINT", "http://127.0.0.1:1")
    assert found()["advice"].startswith("cannot reach http://127.0.0.1:1 (connection refused)")


def test_a_data_directory_that_is_not_writable(run_turnout, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run_turnout("doctor", f"--data={tmp_path}/file/data")
    assert outcome.code == 1
    assert "choose another one with --data or [server] data" in outcome.out


def test_the_doctors_table(run_turnout):
    lines = run_turnout("doctor").out.splitlines()
    assert lines[0].split() == ["WHAT", "STATUS", "FOUND"]


def test_examples_fit_a_terminal_of_eighty_columns(run_turnout, run_tictl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for run in (run_turnout, run_tictl):
        for words in _commands(run):
            text = run(*words, "--help").out
            assert [line for line in text.splitlines() if len(line) > 80] == [], words


def _commands(run, *above):
    """All commands, including those of groups."""
    listed = run(*above, "--help").out.partition("COMMANDS:\n")[2].partition("\n\n")[0]
    for line in listed.splitlines():
        if re.match(r" {3}\S", line):
            words = (*above, line.split()[0])
            yield words
            yield from _commands(run, *words)


def test_the_help_of_serve_names_the_data_directory(run_turnout):
    assert "/var/lib/turnout as root" in run_turnout("serve", "--help").out


def test_login_names_its_own_program(run_turnout):
    assert run_turnout("login", "--info").err.startswith("turnout: there is no login: run `turnout login ")


@pytest.mark.parametrize(
    "words", [[], ["serve", "--help"], ["explain", "-h"], ["logs", "-h"], ["doctor", "-h"]]
)
def test_help_has_descriptions_and_examples(run_turnout, words):
    outcome = run_turnout(*words)
    assert outcome.code == 0
    assert outcome.out.startswith("USAGE:\n   turnout")
    assert "EXAMPLES:" in outcome.out or not words


def test_postgresql_without_its_library(run_turnout, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "turnout.store.postgres", raising=False)
    file = tmp_path / "turnout.toml"
    file.write_text('[store]\nurl = "postgresql://u:p@127.0.0.1:1/x"\n')
    with reachable_directory() as place:
        outcome = run_turnout("serve", "--port=0", f"--data={place}/data", "--config", str(file))
        assert list(place.iterdir()) == []
    assert outcome.code == 1
    assert outcome.err.startswith("turnout: [store] url names PostgreSQL, but psycopg cannot be imported")
    assert "run pip install 'turnout[postgres]'" in outcome.err
    assert outcome.err.count("\n") == 1


def test_grpc_without_its_libraries(run_turnout, tmp_path, monkeypatch):
    monkeypatch.setattr("turnout.gateways.grpc.process._NEEDED", ("grpc", "no_such_module"))
    file = tmp_path / "turnout.toml"
    file.write_text("[grpc]\nport = 8999\n")
    with reachable_directory() as place:
        outcome = run_turnout("serve", "--port=0", f"--data={place}/data", "--config", str(file))
    assert outcome.code == 1
    assert outcome.err.startswith(
        "turnout: [grpc] port needs Python packages that are not installed (no_such"
    )
    assert "run pip install 'turnout[grpc]'" in outcome.err
    assert outcome.err.count("\n") == 1
