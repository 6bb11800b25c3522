"""`turnout setup`: the settings and the unit that it writes, and what it leaves alone."""

import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.certificates import make_certificate
from tests.cli.test_terminal import Terminal
from tests.running import free_port, reachable_directory
from turnout import config


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return ["--config", str(tmp_path / "etc" / "turnout.toml"), "--unit", str(tmp_path / "turnout.service")]


def test_without_a_terminal_it_writes_only_what_was_answered(run_turnout, files, tmp_path):
    refused = run_turnout("setup", *files, "--tls", "none")
    assert refused.code != 0
    assert "--yes" in refused.err
    assert not list(tmp_path.iterdir())
    answers = [
        "--listen",
        "127.0.0.1:8470",
        "--data",
        str(tmp_path / "data"),
        "--tls",
        "none",
        "--frameworks",
        "none",
    ]
    assert run_turnout("setup", *files, *answers).code == 0
    assert (tmp_path / "turnout.service").exists()


def test_flags_answer_the_questions(run_turnout, files, tmp_path, monkeypatch):
    monkeypatch.delenv("TURNOUT_DATA")
    pair = make_certificate(tmp_path)
    wanted = ["--listen", "[::]:443", "--data", '/srv/"jobs" here', "--tls", f"{pair.cert},{pair.key}"]
    dry = run_turnout("setup", *files, *wanted, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert not (tmp_path / "etc").exists()
    written = run_turnout("setup", *files, *wanted, "--yes")
    assert dry.out in written.out
    settings = tmp_path / "etc" / "turnout.toml"
    assert settings.stat().st_mode & 0o777 == 0o600
    found = config.load(str(settings))
    assert (found.server.host, found.server.port, str(found.data)) == ("::", 443, '/srv/"jobs" here')
    assert found.tls_files == (pair.cert, pair.key)
    assert run_turnout("setup", *files, *wanted, "--yes").out.count("wrote") == 0, "it is already so"


def test_a_proxy_is_trusted(run_turnout, files, tmp_path):
    assert run_turnout("setup", *files, "--yes", "--tls", "proxy").code == 0
    settings = tomllib.loads((tmp_path / "etc" / "turnout.toml").read_text())
    assert settings["server"]["trusted_proxies"] == ["127.0.0.1", "::1"]
    assert settings["server"]["host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "8470"], "--listen must be an address and a port, such as 127.0.0.1:8470, not '8470'"),
        (["--listen", "a:0"], "--listen must be an address and a port"),
        (["--data", "jobs"], "--data must be an absolute path"),
        (["--tls", "yes"], "--tls must be none, proxy, or the files of a certificate and its key, not 'yes'"),
        (["--tls", "/none.pem,/none.key"], "--tls: there is no file /none.pem"),
    ],
)
def test_a_wrong_flag(run_turnout, files, tmp_path, words, message):
    refused = run_turnout("setup", *files, "--yes", *words)
    assert (refused.code, message in refused.err) == (1, True), refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_one_word_of_the_unit_and_no_other_line(run_turnout, files, tmp_path):
    odd = tmp_path / 'it\'s; 100% "mine".toml'
    assert run_turnout("setup", "--config", str(odd), *files[2:], "--yes").code == 0
    [command] = re.findall(r"^ExecStart=(.*)$", (tmp_path / "turnout.service").read_text(), re.MULTILINE)
    assert shlex.split(command)[-1] == str(odd).replace("%", "%%")
    refused = run_turnout("setup", "--config", f"{odd}\nUser=root", *files[2:], "--yes", "--overwrite")
    assert (refused.code, "has a control character" in refused.err) == (1, True)


def test_a_file_that_differs_is_replaced_only_on_demand(run_turnout, files, tmp_path):
    unit = tmp_path / "turnout.service"
    unit.write_text("mine")
    refused = run_turnout("setup", *files, "--yes")
    assert (refused.code, "exists and differs: nothing is written" in refused.err) == (1, True)
    assert unit.read_text() == "mine"
    assert not (tmp_path / "etc").exists()
    terminal = Terminal(80, "main")
    question = f"{unit} exists and differs. Replace it? [y/N]: "
    answers = {
        "[127.0.0.1:8470]: ": "127.0.0.1:9000",
        f"Data directory [{config.Settings().data}]: ": "/srv/turnout",
        "key.pem [none]: ": "proxy",
        "or none [none]: ": "install",
        question: "n",
    }
    code, seen = terminal.run("setup", *files, answers=answers, COLUMNS="400")
    assert code == 0, seen
    assert unit.read_text() == "mine"
    found = config.load(files[1])
    assert (found.server.port, found.runtime_defaults.make) == (9000, True)
    assert run_turnout("setup", *files, "--yes", "--overwrite").code == 0
    assert unit.read_text() != "mine"


@pytest.mark.slow
def test_the_unit_is_valid_and_its_command_serves(run_turnout):
    """systemd itself checks the unit. Its command is run by hand, because systemd is not the init here."""
    with reachable_directory() as here:
        unit, settings, port = here / "turnout.service", here / "turnout.toml", free_port()
        words = ["--config", str(settings), "--unit", str(unit), "--data", str(here / "data")]
        assert run_turnout("setup", *words, "--yes", "--listen", f"127.0.0.1:{port}").code == 0
        if shutil.which("systemd-analyze"):
            checked = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (checked.returncode, checked.stderr) == (0, "")
        [command] = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(here),
        }
        with subprocess.Popen(
            shlex.split(command), env=environment, stdout=subprocess.PIPE, text=True, cwd="/", umask=0o077
        ) as serving:
            assert serving.stdout is not None
            assert f"listens on http://127.0.0.1:{port}" in serving.stdout.readline()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                # A warning may follow until the engine has reported what it runs.
                assert answer.read().startswith(b"ok\n")
            serving.terminate()
            assert serving.wait(20) == 0
        # Jobs run as other users, whatever the umask of the one who starts the service.
        assert (here / "data" / "runtimes" / ".etc").stat().st_mode & 0o005 == 0o005
        assert (here / "data" / "root-key").stat().st_mode & 0o777 == 0o600
