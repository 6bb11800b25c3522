"""Requests as jobs: the examples of TI-A's pages, and the rules of tiers and runtimes."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout import config
from turnout.dialects.tia import catalogue, translate, wire
from turnout.errors import Invalid
from turnout.job import All, Mount, NewJob, Resources, Role, WhenLeadSucceeds
from turnout.job.resources import GIB

ONE = Resources.of(cores=1, memory=GIB)
COS = "cos://mybucket-1256385809.cos.ap-beijing.myqcloud.com/mnist:/data/mnist"


def job(runtimes: dict[str, config.RuntimeSettings] | None = None, **fields: Any) -> NewJob:
    base = {"Name": "test-job", "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", "Command": ["python"]}
    given = {name: value for name, value in (base | fields).items() if value is not None}
    return translate.new_job(msgspec.convert(given, wire.CreateJob), "default", runtimes or {})


def refused(field: str, **fields: Any) -> str:
    with pytest.raises(Invalid) as raised:
        job(**fields)
    assert raised.value.field == field
    return raised.value.message


def shape(new: NewJob) -> dict[str, tuple[int, Resources]]:
    return {role.name: (role.replicas, role.resources) for role in new.spec.roles}


def test_the_example_of_create_job():
    new = job(
        ScaleTier="Custom",
        MasterType="1U1G0P",
        WorkerType="1U1G0P",
        ParameterServerType="1U1G0P",
        WorkerCount=2,
        ParameterServerCount=1,
        PackageDir=[COS],
        Args=["mnist_saved_model.py"],
    )
    assert shape(new) == {"master": (1, ONE), "worker": (2, ONE), "ps": (1, ONE)}
    assert new.spec.mounts == (Mount("cos://mybucket-1256385809/mnist", "/data/mnist", package=True),)
    assert new.spec.working_dir == "/data/mnist"
    assert (new.dialect, new.scope, new.handle, new.cluster) == (
        "tia",
        "tia:ap-beijing",
        "test-job",
        "ap-beijing",
    )
    assert not new.spec.debug
    master, worker, ps = new.spec.roles
    assert master.program.argv == worker.program.argv == ps.program.argv == ("python", "mnist_saved_model.py")
    assert master.program.wants == "TensorFlow 1.7.0, MXNet, XGBoost on Python 2.7"
    assert (master.leads, worker.leads, ps.leads) == (True, False, False)
    assert (master.task_type, worker.task_type, ps.task_type) == ("chief", "", "")
    assert worker.when_lead_succeeds is WhenLeadSucceeds.FINISH
    assert ps.when_lead_succeeds is WhenLeadSucceeds.END
    assert new.notes == ()


def test_the_example_of_tfplus():
    """Three workers with two GPUs each: six. Worker 0 leads."""
    new = job(
        Name="test73",
        Cluster="cls-rgaisoe4",
        RuntimeVersion="tfplus-1.6.0-gpu",
        Command=["python", "/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py", "--model", "resnet50"],
        WorkerCount=3,
        WorkerType="0U0G2P",
    )
    assert shape(new) == {"worker": (3, Resources(gpus=2))}
    assert new.spec.lead.name == "worker"
    assert new.spec.share.gpus == 6


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"worker": (1, Resources(gpus=1))}),
        ({"WorkerType": "0U0G2P"}, {"worker": (1, Resources(gpus=2))}),
        (
            {"MasterType": "0U0G4P", "WorkerCount": 2},
            {"master": (1, Resources(gpus=4)), "worker": (2, Resources(gpus=1))},
        ),
    ],
    ids=["nothing given", "a type only", "with a master"],
)
def test_the_machines_of_tfplus(fields: dict[str, Any], expected: dict[str, Any]):
    new = job(RuntimeVersion="tfplus-1.6.0-gpu", **fields)
    assert shape(new) == expected
    assert new.spec.lead.name == next(iter(expected))
    assert new.notes == ()


def test_the_document_is_what_was_sent():
    sent = {
        "ScaleTier": "Custom",
        "WorkerCount": 0,
        "PackageDir": [""],
        "Debug": False,
        "Args": [],
        "MasterType": "",
    }
    base = {"Name": "test-job", "Cluster": "ap-beijing", "RuntimeVersion": "tia-1.7.0", "Command": ["python"]}
    assert msgspec.json.decode(job(**sent).document) == base | sent


# Tiers


@pytest.mark.parametrize("name", catalogue.tiers())
@pytest.mark.parametrize("spelling", [str.upper, str.lower, str.title])
def test_a_preset(name: str, spelling: Any):
    tier = catalogue.tiers()[name]
    counts = {role: count for role, (count, _) in shape(job(ScaleTier=spelling(name))).items()}
    wanted = {"master": 1, "worker": tier.workers, "ps": tier.ps_count}
    assert counts == {role: count for role, count in wanted.items() if count}


@pytest.mark.parametrize("tier", [None, "", "CUSTOM", "Custom", "custom"])
def test_types_and_counts_without_a_preset(tier: str | None):
    new = job(ScaleTier=tier, MasterType="2U4G0P", WorkerCount=2)
    assert shape(new) == {"master": (1, Resources.of(cores=2, memory=4 * GIB)), "worker": (2, Resources())}


def test_nothing_given_is_one_master_on_the_default_machine():
    assert shape(job()) == {"master": (1, Resources())}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("MasterType", "1U1G0P"),
        ("WorkerType", "1U1G0P"),
        ("ParameterServerType", "1U1G0P"),
        ("WorkerCount", 1),
        ("ParameterServerCount", 1),
    ],
)
def test_a_preset_has_its_own_machines(field: str, value: object):
    message = refused(field, ScaleTier="BASIC_DIST", **{field: value})
    assert "CUSTOM" in message


def test_blanks_beside_a_preset_say_nothing():
    assert shape(job(ScaleTier="BASIC", MasterType="", WorkerCount=0)) == shape(job(ScaleTier="BASIC"))


@given(st.text())
def test_any_other_tier_is_refused(name: str):
    if name.upper() in {"", "CUSTOM", *catalogue.tiers()}:
        return
    assert "BASIC_GPU_DIST" in refused("ScaleTier", ScaleTier=name)


@pytest.mark.parametrize("field", ["MasterType", "WorkerType", "ParameterServerType"])
def test_a_wrong_machine_type_is_named(field: str):
    refused(field, **{field: "1U1G"})


def test_a_type_without_a_count_is_told():
    new = job(WorkerType="1U1G0P", ParameterServerType="1U1G0P")
    assert list(shape(new)) == ["master"]
    assert len(new.notes) == 2


@pytest.mark.parametrize("field", ["WorkerCount", "ParameterServerCount"])
def test_too_many_replicas(field: str):
    assert "1000" in refused(field, **{field: 1001})


# Runtimes


def test_an_unknown_runtime_is_told_how_to_declare_it():
    assert "in the settings as [runtimes.torch-2]." in refused("RuntimeVersion", RuntimeVersion="torch-2")
    message = refused("RuntimeVersion", RuntimeVersion="tia-1.9.0")
    assert "did you mean" in message
    assert '[runtimes."tia-1.9.0"]' in message


def test_cos_is_for_tia_runtimes():
    message = refused("PackageDir", RuntimeVersion="tf-1.7.0", PackageDir=[COS])
    assert "tia-1.7.0" in message
    refused("PackageDir", RuntimeVersion="tfplus-1.6.0-gpu", PackageDir=[COS])
    assert (
        job(RuntimeVersion="tf-1.7.0", PackageDir=["nfs://10.10.10.1:/dir:/data"]).spec.working_dir == "/data"
    )


@pytest.mark.parametrize("runtime", ["tiaserv-1.6.0-cpu", "tiaserv-1.6.0-gpu", "Python2.7"])
def test_serving_runtimes_do_not_run_jobs(runtime: str):
    refused("RuntimeVersion", RuntimeVersion=runtime)


def test_an_unknown_runtime_is_told_the_nearest():
    assert "tia-1.7.0" in refused("RuntimeVersion", RuntimeVersion="tia-1.7")


def test_a_runtime_of_the_settings():
    new = job(
        {"torch": config.RuntimeSettings(python="/opt/torch/bin/python")},
        RuntimeVersion="torch",
        PackageDir=[COS],
    )
    assert new.spec.lead.program.runtime == "torch"


def test_the_settings_name_the_lead():
    new = job({"tia-1.4.0": config.RuntimeSettings(lead_task="master")}, RuntimeVersion="tia-1.4.0")
    assert new.spec.lead.task_type == "master"


@pytest.mark.parametrize("field", ["ParameterServerType", "ParameterServerCount"])
def test_tfplus_has_no_parameter_servers(field: str):
    value = 1 if field.endswith("Count") else "1U1G0P"
    refused(field, RuntimeVersion="tfplus-1.6.0-gpu", **{field: value})


def test_tfplus_on_a_preset_leaves_its_parameter_servers_out():
    new = job(RuntimeVersion="tfplus-1.6.0-gpu", ScaleTier="BASIC_DIST")
    assert {name: resources.gpus for name, (_, resources) in shape(new).items()} == {"master": 1, "worker": 1}


# Programs


@pytest.mark.parametrize(
    "fields", [{"Command": None}, {"Command": [], "Args": []}, {"Command": [""], "Args": [""]}]
)
def test_nothing_to_run(fields: dict[str, Any]):
    refused("Command", **fields)


def test_args_alone_are_a_command_line():
    assert job(Command=None, Args=["python", "a.py"]).spec.lead.program.argv == ("python", "a.py")


def test_the_program_has_a_name():
    refused("Command.0", Command=["", "a.py"])


def test_eight_thousand_words():
    words = tuple(f"--step={number}" for number in range(7_999))
    assert job(Args=list(words)).spec.lead.program.args == words
    assert "8000" in refused("Args", Args=[*words, "one more"])


def test_more_than_the_kernel_takes():
    refused("Args.1", Args=["a", "x" * (128 << 10)])
    refused("Args.0", Args=["ü" * (64 << 10)])
    refused("Args", Args=["x" * 100_000] * 16)


def test_a_word_with_a_nul():
    refused("Args.1", Args=["a", "b\0c"])


@pytest.mark.parametrize("name", ["", "Upper", "-a", ".a", "a_b", "a\n", "a b", "ü", "a/b", "a" * 129])
def test_names_that_are_refused(name: str):
    refused("Name", Name=name)


@pytest.mark.parametrize("name", ["a", "0", "cpu-job", "a.b-c.9", "a" * 128])
def test_names_that_are_accepted(name: str):
    assert job(Name=name).handle == name


def test_debug_keeps_the_workspace():
    assert job(Debug=True).spec.debug


def test_runtime_conf_has_an_effect_for_spark_only():
    assert "RuntimeConf" in job(RuntimeConf=["a=b"]).notes[0]
    refused("RuntimeConf.1", RuntimeConf=["a=b", "nonsense"])


# Spark


def spark(**fields: Any) -> Role:
    application = ["local:///opt/spark/examples/src/main/python/wordcount.py", "words.txt"]
    new = job(**{"RuntimeVersion": "tia-spark-2.4.0", "Command": application} | fields)
    assert any("local mode" in note for note in new.notes)
    assert len(new.spec.roles) == 1
    return new.spec.lead


def test_spark_is_submitted_in_local_mode():
    role = spark(
        RuntimeConf=["class=org.example.Main", "spark.driver.memory=1g"], PackageDir=[COS], Args=["9"]
    )
    assert role.program.argv == (
        *("spark-submit", "--master", "local[1]", "--name", "test-job"),
        *("--class", "org.example.Main", "--conf", "spark.driver.memory=1g"),
        *("local:///opt/spark/examples/src/main/python/wordcount.py", "words.txt", "9"),
    )


def test_sparks_driver_takes_what_all_of_them_need():
    role = spark(ScaleTier="SMALL_DIST", Command=["spark-submit", "a.py"])
    assert role.resources == Resources.of(cores=6, memory=12 * GIB)
    assert role.program.argv[:3] == ("spark-submit", "--master", "local[4]")
    assert role.program.argv[-1] == "a.py"


def test_spark_ignores_parameter_servers():
    assert spark(ParameterServerCount=3, ParameterServerType="1U1G0P").replicas == 1


def test_spark_needs_a_distributed_tier():
    refused("ScaleTier", RuntimeVersion="tia-spark-2.4.0", ScaleTier="BASIC")


def test_spark_knows_its_settings():
    assert "spark.*" in refused("RuntimeConf", RuntimeVersion="tia-spark-2.4.0", RuntimeConf=["memory=1g"])


# Lists and logs


def list_jobs(**fields: Any):
    return translate.list_query(msgspec.convert({"Cluster": "ap-beijing"} | fields, wire.ListJobs))


def test_a_page_of_jobs():
    query, page = list_jobs()
    assert not isinstance(query, All)
    assert (page.limit, page.offset, page.descending) == (20, 0, True)
    _, page = list_jobs(Limit=100, Offset=40)
    assert (page.limit, page.offset) == (100, 40)


@pytest.mark.parametrize("limit", [0, 101])
def test_the_size_of_a_page_of_jobs(limit: int):
    with pytest.raises(Invalid, match="1 to 100"):
        list_jobs(Limit=limit)


def log_range(**fields: Any) -> translate.LogRange:
    base = {
        "JobName": "a",
        "Cluster": "b",
        "StartTime": "2018-05-23 10:00:00",
        "EndTime": "2018-05-23 10:00:01",
    }
    return translate.log_range(msgspec.convert(base | {"Limit": 10} | fields, wire.QueryLogs))


AT = 1527040800 * 10**9


def test_times_are_chinas_and_the_last_second_is_whole():
    found = log_range()
    assert (found.start, found.end) == (AT, AT + 1_999_999_999)


@pytest.mark.parametrize(
    "text", ["2018-05-23T02:00:00Z", "2018-05-23 10:00:00+08:00", "2018-05-23 04:00:00+02:00"]
)
def test_a_time_may_have_a_zone(text: str):
    assert log_range(StartTime=text).start == AT


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2018-13-01 00:00:00", "1527040800", "2018-05-23 10:00:00 CST"]
)
@pytest.mark.parametrize("field", ["StartTime", "EndTime"])
def test_a_time_that_is_none(field: str, text: str):
    with pytest.raises(Invalid) as raised:
        log_range(**{field: text})
    assert raised.value.field == field


def test_an_end_before_the_start():
    with pytest.raises(Invalid, match="EndTime"):
        log_range(EndTime="2018-05-23 09:59:59")


@pytest.mark.parametrize("limit", [0, 1001])
def test_the_size_of_a_page_of_logs(limit: int):
    with pytest.raises(Invalid, match="1 to 1000"):
        log_range(Limit=limit)


@given(st.integers(0, 9_999), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_context_comes_back_as_it_was_given(given_lines: int, cursor: str):
    found = log_range(Context=translate.context(given_lines, cursor))
    assert (found.lines_before, found.cursor) == (given_lines, cursor)


@pytest.mark.parametrize("change", ["{}.x", "{}=", "{}\n", "x{}", " {}", "{}é"])
def test_a_context_is_taken_as_it_was_given_only(change: str):
    for cursor in ("c", "cc", "ccc"):
        with pytest.raises(Invalid) as raised:
            log_range(Context=change.format(translate.context(7, cursor)))
        assert raised.value.field == "Context"


def test_a_context_leads_through_ten_thousand_lines():
    assert log_range(Limit=10, Context=translate.context(9_995, "c")).limit == 5
    with pytest.raises(Invalid) as raised:
        log_range(Context=translate.context(10_000, "c"))
    assert raised.value.field == "Context"


@given(st.one_of(st.text(min_size=1), st.text("MTIz0aA-_=", min_size=1)))
def test_a_context_of_somebody_else(text: str):
    """What decodes by accident is for the cursor's own check; everything else is refused by name."""
    with contextlib.suppress(Invalid):
        assert log_range(Context=text).lines_before < 10_000
