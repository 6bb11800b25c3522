"""What tictl sends and prints."""

import json
import shlex

import pytest

SEED = r"""tictl job create test73 \
  --cluster=cls-rgaisoe4 \
  --region=ap-guangzhou \
  --command="python /scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py \
            --model resnet50 \
            --batch_size 32 \
            --variable_update tfplus" \
  --runtime=tfplus-1.6.0-gpu \
  --wcount=3 \
  --workertype=0U0G2P
"""
CREATED = "2018-05-03 20:06:40.109664331 +0800 CST m=+16304.376036037"


@pytest.fixture
def service(recorder):
    recorder.answers["CreateJob"] = lambda fields: {
        "Job": fields | {"CreateTime": CREATED, "Message": "creating"}
    }
    return recorder


def typed(line):
    return shlex.split(line.replace("\\\n", ""))[1:]


def test_the_example_of_the_documentation_unchanged(service, run_tictl):
    assert run_tictl(*typed(SEED)).code == 0
    assert service.calls == [
        (
            "CreateJob",
            {
                "Name": "test73",
                "Cluster": "cls-rgaisoe4",
                "RuntimeVersion": "tfplus-1.6.0-gpu",
                "Command": [
                    "python", "/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py", "--model", "resnet50",
                    "--batch_size", "32", "--variable_update", "tfplus",
                ],
                "WorkerType": "0U0G2P",
                "WorkerCount": 3,
            },
        )
    ]  # fmt: skip
    assert service.headers[0]["X-TC-Region"] == "ap-guangzhou"


def test_create_prints_the_job_of_the_response(service, run_tictl):
    outcome = run_tictl("job", "create", "cpu-job", "--command=python", "--args=train.py")
    assert outcome.out == (
        "create job success.\n"
        "NAME       CREATED                                                       END    STATE    MESSAGE\n"
        f"cpu-job    {CREATED}                    creating\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        """
        tictl job create j -p file:///a:/a --command python --args 't.py --lr 0.1' --st CUSTOM
        --mt 1U1G0P --wt 2U2G0P --pt 3U3G0P -w 2 --ps 1 --conf a=1 --conf b=2 --debug -c ap-chengdu
        """,
        """
        tictl job create --packagedir=file:///a:/a --command=python --args='t.py --lr 0.1'
        --scaletier=CUSTOM --mastertype=1U1G0P --workertype=2U2G0P --pstype=3U3G0P --wcount=2 --pscount=1
        --conf=a=1 --conf=b=2 --debug --cluster=ap-chengdu j
        """,
    ],
    ids=["name first, short flags", "name last, long flags"],
)
def test_every_flag_in_both_spellings(service, run_tictl, line):
    assert run_tictl(*typed(line)).code == 0
    assert service.calls[0][1] == {
        "Name": "j",
        "Cluster": "ap-chengdu",
        "RuntimeVersion": "tia-1.6.0",
        "PackageDir": ["file:///a:/a"],
        "Command": ["python"],
        "Args": ["t.py", "--lr", "0.1"],
        "ScaleTier": "CUSTOM",
        "MasterType": "1U1G0P",
        "WorkerType": "2U2G0P",
        "ParameterServerType": "3U3G0P",
        "WorkerCount": 2,
        "ParameterServerCount": 1,
        "RuntimeConf": ["a=1", "b=2"],
        "Debug": True,
    }


def test_arguments_that_look_like_flags_and_quotes_inside(service, run_tictl):
    run_tictl("job", "create", "j", "--command", "sh -c", "--args", """'echo "a  b"' --x""")
    assert service.calls[0][1]["Args"] == ['echo "a  b"', "--x"]


def test_a_quote_that_is_not_closed(run_tictl):
    outcome = run_tictl("job", "create", "j", "--command", "sh -c 'echo")
    assert outcome.code == 1
    assert outcome.err.startswith("tictl: --command cannot be split into words: No closing quotation")


def test_list_is_in_the_order_of_names_and_over_all_pages(recorder, run_tictl):
    jobs = [{"Name": f"job-{i:03}", "CreateTime": "now", "State": "Running"} for i in range(150)][::-1]
    recorder.answers["ListJobs"] = lambda page: {
        "Jobs": jobs[page["Offset"] : page["Offset"] + page["Limit"]]
    }
    rows = run_tictl("job", "list").out.splitlines()
    assert [row.split()[0] for row in rows] == ["NAME", *sorted(job["Name"] for job in jobs)]
    assert json.loads(run_tictl("job", "list", "--output=json").out)[0] == jobs[-1]


def test_describe_shows_existing_jobs_and_an_error_for_the_others(recorder, run_tictl):
    def describe(fields):
        if fields["Name"] == "gone":
            return {"Error": {"Code": "ResourceNotFound", "Message": "no job gone"}}
        return {
            "Job": {"Name": fields["Name"], "CreateTime": "now", "EndTime": "later", "State": "Succeeded"}
        }

    recorder.answers["DescribeJob"] = describe
    recorder.answers["jobs/gone"] = {"error": {"code": "NotFound", "message": "no job gone"}}
    outcome = run_tictl("job", "describe", "a", "gone", "b", "--no-header")
    complaint = (
        "tictl: no job gone (ResourceNotFound); tictl shows only TI-A jobs of a cluster, here ap-beijing "
    )
    assert outcome == (
        1,
        "a    now    later    Succeeded\nb    now    later    Succeeded\n",
        complaint + "(-c chooses another); `turnout logs` and `turnout explain` find every job\n",
    )


def test_delete(recorder, run_tictl):
    recorder.answers["DeleteJob"] = {"RequestId": "x"}
    assert run_tictl("job", "delete", "a", "b", "-c", "cls-1") == (
        0,
        "The job a is deleted successfully.\nThe job b is deleted successfully.\n",
        "",
    )
    assert recorder.calls == [("DeleteJob", {"Name": name, "Cluster": "cls-1"}) for name in ("a", "b")]


def log_service(recorder, count):
    job = {"Name": "cpu-job", "Cluster": "ap-beijing", "Id": "u", "CreateTime": CREATED}
    recorder.answers["DescribeJob"] = {"Job": job | {"EndTime": "2018-05-03 20:10:08 +0800 CST"}}
    lines = [
        {"Time": "2018-05-03T12:10:08.25569919Z", "PodName": "pod", "Log": f"line {i}"} for i in range(count)
    ]

    def page(fields):
        start = int(fields.get("Context", "0"))
        end = start + fields["Limit"]
        return {"Logs": lines[start:end], "Context": str(end), "Listover": end >= count}

    recorder.answers["QueryLogs"] = page


def test_logs_as_in_the_sample_of_the_documentation(recorder, run_tictl):
    log_service(recorder, 1)
    assert run_tictl("logs", "cpu-job").out == "[2018-05-03T12:10:08.25569919Z   pod] line 0\n"
    assert run_tictl("logs", "cpu-job", "--time-prefix").out.startswith("[2018")
    assert run_tictl("logs", "cpu-job", "--no-time-prefix").out == "line 0\n"
    assert recorder.calls[1] == (
        "QueryLogs",
        {
            "JobName": "cpu-job",
            "Cluster": "ap-beijing",
            "StartTime": "2018-05-03 20:06:40",
            "EndTime": "2018-05-03 20:10:08",
            "Limit": 1000,
        },
    )


def test_logs_go_through_all_pages_up_to_the_limit(recorder, run_tictl):
    log_service(recorder, 2500)
    first = run_tictl("logs", "cpu-job")
    assert len(first.out.splitlines()) == 1000
    assert first.err == "tictl: these are the first 1000 lines; --limit shows more, --follow all\n"
    more = run_tictl("logs", "cpu-job", "-l", "9000")
    assert (len(more.out.splitlines()), more.err) == (2500, "")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-s", "yesterday"], "--start-time must look like 2018-05-03 20:10:00, not 'yesterday'"),
        (["-l", "10001"], "--limit is at most 10000; `tictl logs --follow` shows all lines of a job"),
        (
            ["-f", "-e", "2018-05-03 20:10:00"],
            "--follow shows all lines: omit --start-time and --end-time",
        ),
    ],
)
def test_invalid_arguments_of_logs(run_tictl, words, complaint):
    outcome = run_tictl("logs", "cpu-job", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["job", "create"], "tictl: missing argument 'NAME'; see `tictl job create --help`\n"),
        (
            ["job", "creat"],
            "tictl: no such command 'creat': did you mean 'create'? See `tictl job --help`\n",
        ),
        (["job", "create", "j", "-w", "two"], "tictl: -w, --wcount: 'two' is not a whole number; see"),
        (["logs", "j", "--limit=0"], "tictl: -l, --limit: 0 is less than 1; see"),
        (["job", "list", "--clutser=x"], "no such option: --clutser"),
        (["model", "create", "m", "--model=x"], "Turnout does not serve models yet"),
        (["install", "-c", "cls-1"], "Turnout runs jobs itself, without an agent"),
    ],
)
def test_errors_are_one_line(run_tictl, words, complaint):
    outcome = run_tictl(*words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--command=echo $HOME && false"], "$HOME"),
        (["--command=make && make test"], "&&"),
        (["--command=ls", "--args=-l | wc"], "|"),
        (["--command=echo a > /tmp/file"], ">"),
        (["--command=cd /data; ls"], ";"),
        (["--command=echo ${HOME}"], "${HOME}"),
    ],
)
def test_a_warning_about_shell_syntax(service, run_tictl, flags, word):
    outcome = run_tictl("job", "create", "j", *flags)
    assert outcome.code == 0
    assert outcome.err == (
        f"tictl: no shell runs this command: the program gets {word} as a plain word; for a shell, use sh -c '…'\n"
    )


@pytest.mark.parametrize(
    "flags",
    [
        ["--command=sh -c 'echo $HOME && false > /tmp/file'"],
        ["--command=sh", '--args=-c "cd /data; ls | wc"'],
        ["--command=python t.py --regex a|b --at x;y"],
        [r"--command=echo \$HOME"],
    ],
)
def test_no_warning_about_quoted_shell_syntax(service, run_tictl, flags):
    assert run_tictl("job", "create", "j", *flags).err == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-s", "2027-01-01 00:00:00"], "the job ended before, at 2018-05-03 20:10:08 +0800"),
        (["-e", "2017-01-01 00:00:00"], "the job was created later, at 2018-05-03 20:06:40 +0800"),
        (
            ["-s", "2027-01-01 00:00:00", "-e", "2017-01-01 00:00:00"],
            "--end-time must not be before --start-time",
        ),
    ],
)
def test_logs_of_a_time_outside_the_job(recorder, run_tictl, words, complaint):
    log_service(recorder, 1)
    outcome = run_tictl("logs", "cpu-job", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err


@pytest.mark.parametrize(
    ("times", "reason", "message", "out", "err"),
    [
        (
            {"created": 0, "started": 28 * 10**9, "ended": 30 * 10**9},
            "out of memory",
            "master-0 ran out of memory",
            "j: failed after 2.0 s, after 28.0 s of waiting\n",
            "j: master-0 ran out of memory; see `tictl logs j` and `turnout explain j`\n",
        ),
        (
            {"created": 0, "started": None, "ended": 29 * 10**9},
            "staging failed",
            "mount failed.\n  dmesg may tell.\n",
            "j: failed before it started, after 29.0 s of waiting\n",
            "j: staging failed: mount failed. dmesg may tell; see `tictl logs j` and `turnout explain j`\n",
        ),
    ],
)
def test_wait_reports_how_the_job_ended(service, run_tictl, times, reason, message, out, err):
    service.answers["DescribeJob"] = {
        "Job": {"Name": "j", "Cluster": "ap-beijing", "Id": "u", "State": "Failed"}
    }
    service.answers["jobs/u/wait"] = {"state": "failed", "reason": reason, "message": message} | times
    outcome = run_tictl("job", "create", "j", "--command=true", "--wait")
    assert outcome.code == 1
    assert outcome.out.endswith(out)
    assert outcome.err == err


def test_help_as_a_command(run_tictl):
    assert run_tictl("help") == run_tictl("--help")
    assert run_tictl("help", "job", "create") == run_tictl("job", "create", "--help")
    assert run_tictl("job", "help") == run_tictl("job", "--help")


def test_help_does_not_break_names(run_tictl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert "ap-beijing" in run_tictl("job", "list", "--help").out.split("EXAMPLES:")[0]


def test_version(run_tictl):
    assert run_tictl("version").out.startswith("tictl version 0.")
    assert run_tictl("--version") == run_tictl("version")


@pytest.mark.parametrize(
    "words", [[], ["-h"], ["--help"], ["job"], ["job", "create", "-h"], ["logs", "--help"]]
)
def test_help_has_the_layout_of_the_original(run_tictl, words):
    outcome = run_tictl(*words)
    headings = [line for line in outcome.out.splitlines() if not line.startswith(" ") and line]
    assert outcome.code == 0
    assert headings[:2] == ["USAGE:", "DESCRIPTION:"]
    assert "OPTIONS:" in headings


def test_help_shows_flags_and_defaults_as_the_original(run_tictl):
    text = run_tictl("job", "create", "--help").out
    assert "tictl job create [options] NAME" in text
    assert "-p value, --packagedir value" in text
    assert '--runtime value                 runtime environment (default: "tia-1.6.0")' in text
    assert "--st value, --scaletier value" in text
