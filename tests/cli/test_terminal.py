"""Output on a terminal: tables that fit, colours, questions, a live line."""

import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from turnout.cli.login import stored

JOB = {
    "Name": "gpu-job",
    "Cluster": "ap-beijing",
    "CreateTime": "2018-05-03 20:06:40 +0800 CST",
    "EndTime": "2018-05-03 20:07:40 +0800 CST",
}
CLUSTERS = [
    {"name": "ap-beijing", "shared": True},
    {"name": "cls-002", "region": "ap-shanghai", "shared": False},
]


class Terminal:
    """Runs a command on a terminal of a certain width and types answers."""

    def __init__(self, columns: int, program: str = "tictl") -> None:
        self._columns = columns
        self._program = program

    def run(self, *words: str, answers: dict[str, str] | None = None, **variables: str) -> tuple[int, str]:
        """(exit code, output). `answers`: question -> what is typed when it appears."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, self._columns))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")
        }
        process = subprocess.Popen(
            [sys.executable, "-m", f"turnout.cli.{self._program}", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"TERM": "xterm-256color"} | variables,
            start_new_session=True,
        )
        os.close(theirs)
        seen = self._watch(ours, dict(answers or {}))
        os.close(ours)
        return process.wait(), seen.replace("\r\n", "\n")

    @staticmethod
    def _watch(terminal: int, answers: dict[str, str]) -> str:
        seen = b""
        with suppress(OSError):  # the terminal is hung up when the program ends
            while chunk := os.read(terminal, 4096):
                seen += chunk
                for question in [q for q in answers if seen.endswith(q.encode())]:
                    os.write(terminal, answers.pop(question).encode() + b"\n")
        return seen.decode()


@pytest.fixture
def terminal():
    return Terminal(60)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_table_fits_the_terminal_and_states_have_colours(recorder, terminal):
    recorder.answers["ListJobs"] = {
        "Jobs": [JOB | {"State": "Failed", "Message": "[MASTER/Failed : Failed/1]"}]
    }
    _, cut = terminal.run("job", "list", "--no-header")
    assert len(plain(cut).rstrip("\n")) == 60
    assert plain(cut).endswith("…\n")
    _, whole = terminal.run("job", "list", "--no-truncate")
    assert plain(whole).endswith("[MASTER/Failed : Failed/1]\n")
    assert "\x1b[31mFailed\x1b[0m    [MASTER" in whole
    _, colourless = terminal.run("job", "list", "--no-truncate", NO_COLOR="1")
    assert colourless == plain(whole)


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            80,
            [
                "NAME       CREATED (+0800)        END (+0800)            STATE     MESSAGE",
                "gpu-job    2018-05-03 20:06:40    2018-05-03 20:07:40    Failed    [MASTER/Fail…",
            ],
        ),
        (
            60,
            [
                "NAME     CREATED (+0800)  END (+0800)     STATE   MESSAGE",
                "gpu-job  05-03 20:06:40   05-03 20:07:40  Failed  [MASTER/F…",
            ],
        ),
        (
            130,
            [
                "NAME       CREATED                          END                              STATE     MESSAGE",
                f"gpu-job    {JOB['CreateTime']}    {JOB['EndTime']}    Failed    [MASTER/Failed : Failed/1]",
            ],
        ),
    ],
)
def test_a_narrow_terminal_still_shows_the_state(recorder, columns, lines):
    recorder.answers["ListJobs"] = {
        "Jobs": [JOB | {"State": "Failed", "Message": "[MASTER/Failed : Failed/1]"}]
    }
    _, seen = Terminal(columns).run("job", "list")
    assert plain(seen).splitlines() == lines


def test_explain_wraps_long_messages_and_shows_the_time_zone(recorder):
    recorder.answers["jobs/j/explain"] = {
        "name": "j", "id": "7", "cluster": "ap-beijing", "state": "failed", "replicas": [],
        "why": ["It failed: " + "very " * 20 + "badly."],
        "events": [{"at": 1_500_000_000 * 10**9, "kind": "ended", "message": "a long story " * 8}],
        "workspaces": ["/data/attempts/7.1_master-0/work"],
    }  # fmt: skip
    code, seen = Terminal(80, "main").run("explain", "j", TZ="Asia/Shanghai")
    assert code == 0, seen
    assert "…" not in seen
    assert all(len(line) <= 80 for line in plain(seen).splitlines())
    assert "2017-07-14 10:40:00.000+08:00    ended" in seen
    assert "  Kept for debugging: /data/attempts/7.1_master-0/work\n" in seen
    assert "02:40:00.000Z" in Terminal(80, "main").run("explain", "j", TZ="UTC")[1]


def test_explain_shows_the_last_trials_of_a_search(recorder):
    def trial(number: int, **more: object) -> dict[str, object]:
        usual = {"state": "succeeded", "value": number / 7, "started": 0, "ended": 10**9, "message": ""}
        parameters = {"lr": 0.123456789, "layers": 3, "kind": "adam"}
        return {"number": number, "id": f"{number:08x}", "parameters": parameters} | usual | more

    point = ["lr=0.1235,", "layers=3,", "kind=adam"]
    failed = trial(12, state="infeasible", value=None, message="worker-0 exited with code 2")
    recorder.answers["jobs/j/explain"] = {
        "name": "j", "id": "7", "cluster": "ap-beijing", "state": "running", "replicas": [], "events": [],
        "why": ["It is running 1 of its trials now."], "workspaces": [],
        "trials": [*map(trial, range(1, 12)), failed, trial(13, state="requested", started=None, value=None)],
    }  # fmt: skip
    code, seen = Terminal(120, "main").run("explain", "j")
    assert code == 0, seen
    assert [line.split() for line in plain(seen).splitlines()[3:]] == [
        ["TRIAL", "ID", "STATE", "TIME", "VALUE", "PARAMETERS", "MESSAGE"],
        ["…", "3", "earlier", "trials:", "see", "--output", "json"],
        *([str(n), f"{n:08x}", "succeeded", "1.0", "s", f"{n / 7:.4g}", *point] for n in range(4, 12)),
        ["12", "0000000c", "infeasible", "1.0", "s", *point, "worker-0", "exited", "with", "code", "2"],
        ["13", "0000000d", "requested", *point],
    ]


def test_keys_and_ls_wrap_long_names_and_show_the_time_zone(recorder):
    made, label = 1_500_000_000 * 10**9, "Ann, whose laptop has a long name"
    key = {"id": "AKID" + "x" * 20, "project": "vision", "root": False, "created": made, "label": label}
    recorder.answers["keys"] = {"keys": [key]}
    _, seen = Terminal(80, "main").run("keys", "list", TZ="Asia/Shanghai")
    assert seen.splitlines() == [
        "ID                        PROJECT  CREATED                    LABEL",
        f"{key['id']}  vision   2017-07-14 10:40:00+08:00  Ann, whose laptop",
        f"{'':62}has a long name",
    ]
    found = {"key": "a", "size": 2048, "modified": made, "etag": "e", "crc32c": None, "content_type": "c"}
    recorder.answers |= {"whoami": {}, "objects": {"objects": [found], "prefixes": [], "next": ""}}
    _, seen = Terminal(80, "main").run("ls", "-l", "gs://data", TZ="UTC")
    assert seen.splitlines()[1].split("    ")[1:] == ["2017-07-14 02:40:00Z", "a"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("nofile", "nofile: No such file or directory"),
        (".", ". is a directory: copy it with -r"),
        ("gs://data/nothing", "gs://data/nothing does not exist"),
    ],
)
def test_no_progress_bar_appears_above_an_early_error(recorder, source, complaint):
    recorder.answers |= {"whoami": {}, "objects": {"objects": [], "prefixes": [], "next": ""}}
    recorder.answers["object/info"] = {"error": {"code": "NotFound", "message": "there is none"}}
    code, seen = Terminal(80, "main").run("cp", source, "gs://data/")
    assert (code, seen) == (1, f"turnout: {complaint}\n")


def test_the_progress_bar_disappears_before_an_error(recorder, tmp_path):
    recorder.answers |= {"whoami": {}, "objects": {"objects": [], "prefixes": [], "next": ""}}
    (tmp_path / "a").write_bytes(b"")
    _, seen = Terminal(80, "main").run("cp", str(tmp_path / "a"), str(tmp_path / "none"), "gs://data/")
    up_and_erased = "\x1b[1A\x1b[2K"
    assert seen.endswith(f"{up_and_erased}turnout: {tmp_path}/none: No such file or directory\n")


def test_a_note_about_an_empty_log_appears_on_a_terminal_only(recorder, terminal, run_tictl):
    recorder.answers["DescribeJob"] = {"Job": JOB | {"Id": "u", "State": "Succeeded"}}
    recorder.answers["QueryLogs"] = {"Logs": [], "Context": "", "Listover": True}
    assert terminal.run("logs", "gpu-job") == (0, "tictl: gpu-job printed nothing\n")
    assert run_tictl("logs", "gpu-job") == (0, "", "")


def test_switch_lists_the_clusters_and_asks(recorder, terminal):
    recorder.answers["clusters"] = {"clusters": CLUSTERS}
    question = "Please input the cluster ID you want to switch to: "
    code, seen = terminal.run("cluster", "switch", answers={question: "cls-002"})
    assert code == 0
    assert re.search(r"ap-shanghai +cls-002.*ap-beijing +ap-beijing", seen, re.DOTALL)
    assert seen.endswith("The default cluster is set as `ap-shanghai: cls-002`\n")
    assert stored().cluster == "cls-002"


def test_login_asks_for_the_key_and_does_not_show_the_secret(recorder, terminal, monkeypatch):
    monkeypatch.delenv("TURNOUT_KEY")
    recorder.answers["whoami"] = {"key": "me", "project": "default", "root": True}
    code, seen = terminal.run("login", answers={"secret id: ": "me", "secret key: ": "my-secret"})
    assert code == 0, seen
    assert "my-secret" not in seen
    assert (stored().secret_id, stored().secret_key) == ("me", "my-secret")


def test_login_asks_even_if_the_root_key_is_readable(recorder, terminal, monkeypatch, tmp_path):
    monkeypatch.delenv("TURNOUT_KEY")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "root-key").write_text("root:root-secret\n")
    recorder.answers["whoami"] = {"key": "me", "project": "default", "root": True}
    code, seen = terminal.run("login", answers={"secret id: ": "me", "secret key: ": "my-secret"})
    assert code == 0, seen
    assert stored().secret_id == "me"
    again = {"secret id [me]: ": "", "secret key (Enter keeps it): ": ""}
    assert terminal.run("login", answers=again)[0] == 0
    assert (stored().secret_id, stored().secret_key) == ("me", "my-secret")


def test_wait_shows_a_live_line(recorder, terminal):
    replica = {"name": "master-0", "state": "running"}
    times = {"created": 10**9, "started": 10**9, "ended": 3 * 10**9}
    views = {
        "started": {"state": "running", "replicas": [replica]},
        "ended": {"state": "succeeded", "replicas": []} | times,
    }
    recorder.answers["CreateJob"] = {"Job": JOB}
    recorder.answers["DescribeJob"] = {"Job": JOB | {"Id": "u", "State": "Succeeded"}}
    recorder.answers["jobs/u/wait"] = lambda query: views[query["for"]] | {"reason": None, "message": ""}
    code, seen = terminal.run("job", "create", "gpu-job", "--command=true", "--wait")
    assert code == 0, seen
    assert "\x1b[?25l" in seen, "the cursor is hidden while the line moves"
    assert "\x1b[?25h" in seen, "and back afterwards"
    assert plain(seen).endswith("gpu-job: succeeded after 2.0 s\n")
