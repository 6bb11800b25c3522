"""Lists, tasks, stages, events, logs and metrics through Huawei's own client."""

import json
import re
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

import psutil
import pytest

from tests.dialects.modelarts.driving import Cloud, put, refused
from tests.running import KEY, Service
from turnout.access import Key, make_token

SOLO = "echo first; echo second >&2; echo third"


@pytest.fixture(scope="module")
def done(service: Service, cloud: Cloud) -> Any:
    """A job that completed, as its details say."""
    return _run(service, cloud, "looked-at", SOLO)


def _run(service: Service, cloud: Cloud, name: str, command: str, **parts: Any) -> Any:
    job_id = cloud.create(name, command, **parts).metadata.id
    service.wait(job_id)
    return cloud.details(job_id)


def listed(cloud: Cloud, *filters: dict[str, Any], **body: Any) -> Any:
    return cloud("list_training_jobs", body=body | {"filters": list(filters)})


def names(answer: Any) -> list[str]:
    return [item.metadata.name for item in answer.items]


def one_of(key: str, operator: str, *value: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "value": list(value)}


def fetch(url: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read(), answer.headers


# The list


def test_pages_of_the_list(service: Service, cloud: Cloud) -> None:
    mark = f"page-{uuid.uuid4().hex[:8]}"
    for number in range(3):
        _run(service, cloud, f"{mark}-{number}", "true")
    like = one_of("name", "like", mark)
    first = listed(cloud, like, limit=2, offset=0)
    assert names(first) == [f"{mark}-2", f"{mark}-1"]
    assert (first.total, first.count, first.limit, first.offset) == (3, 2, 2, 0)
    assert (first.sort_by, first.order, first.group_by, first.workspace_id) == (
        "create_time",
        "desc",
        "",
        "0",
    )
    assert names(listed(cloud, like, limit=2, offset=1)) == [f"{mark}-0"]
    assert names(listed(cloud, like, limit=2, offset=2)) == []
    assert names(listed(cloud, like, order="asc")) == [f"{mark}-{number}" for number in range(3)]


def test_items_are_whole_jobs(cloud: Cloud, done: Any) -> None:
    answer = listed(cloud, one_of("id", "in", done.metadata.id))
    assert answer.to_json_object()["items"] == [done.to_json_object()]


def test_filters_of_all_kinds(service: Service, cloud: Cloud) -> None:
    mark = f"kinds-{uuid.uuid4().hex[:8]}"
    good = _run(service, cloud, f"{mark}-good", "true").metadata.id
    _run(service, cloud, f"{mark}-bad", "exit 3")
    like = one_of("name", "like", mark)
    assert names(listed(cloud, like, one_of("phase", "in", "Failed"))) == [f"{mark}-bad"]
    assert names(listed(cloud, like, one_of("phase", "not", "Failed"))) == [f"{mark}-good"]
    assert names(listed(cloud, like, one_of("id", "in", good))) == [f"{mark}-good"]
    assert names(listed(cloud, like, one_of("kind", "in", "hetero_job"))) == []
    empty = [one_of("phase", "in", ""), one_of("user_id", "in"), one_of("create_time", "between", "", "")]
    assert len(names(listed(cloud, like, *empty, one_of("kind", "in", "job")))) == 2
    assert names(listed(cloud, like, one_of("create_time", "between", "", "1000"))) == []


def test_jobs_are_found_by_tag_and_by_host(service: Service, cloud: Cloud) -> None:
    mark = uuid.uuid4().hex[:8]
    job_id = _run(service, cloud, f"tagged-{mark}", "true").metadata.id
    cloud("create_train_job_tags", training_job_id=job_id, body={"tags": [{"key": "mark", "value": mark}]})
    assert names(listed(cloud, tags=[{"key": "mark", "values": [mark, "other"]}])) == [f"tagged-{mark}"]
    assert names(listed(cloud, tags=[{"key": "mark", "values": ["other"]}])) == []
    by_id = one_of("id", "in", job_id)
    (item,) = listed(cloud, by_id, host_ips=["127.0.0.1"]).items
    (placed,) = item.status.task_ips
    assert (placed.task, placed.host_ip, placed.schedule_count) == ("worker-0", "", 1)
    assert placed.ip.startswith("127.")
    assert listed(cloud, by_id, host_ips=["10.0.0.1"]).items == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"filters": [one_of("colour", "in", "red")]}, "2807"),
        ({"filters": [one_of("name", "near", "red")]}, "2808"),
        ({"filters": [one_of("phase", "in", "Asleep")]}, "2809"),
        ({"filters": ["name"]}, "2789"),
        ({"filters": [{"key": ["name"]}]}, "2789"),
        ({"sort_by": "colour"}, "2790"),
        ({"limit": 51}, "2788"),
        ({"limit": "many"}, "2788"),
        ({"tags": {}}, "2788"),
        ("no json", "2787"),
        ("[]", "2788"),
    ],
)
def test_what_the_list_refuses(cloud: Cloud, body: Any, code: str) -> None:
    with refused(f"ModelArts.{code}"):
        cloud("list_training_jobs", body=body)


def test_an_unknown_workspace(cloud: Cloud) -> None:
    with refused("ModelArts.0102"):
        listed(cloud, workspace_id="f" * 32)


# Tasks, stages, events


def test_tasks_are_an_array(cloud: Cloud, done: Any) -> None:
    (task,) = cloud("list_training_job_tasks", training_job_id=done.metadata.id).body
    assert (task.task, task.host_ip, task.schedule_count) == ("worker-0", "127.0.0.1", 1)
    assert task.ip.startswith("127.")
    assert not cloud("list_training_job_tasks", training_job_id=done.metadata.id, schedule_count=2).body


def test_stages(cloud: Cloud, done: Any) -> None:
    answer = cloud("list_training_job_stages", training_job_id=done.metadata.id)
    (record,) = answer.running_records
    assert (answer.total_count, record.record_order) == (1, 1)
    assert [(one.name, one.stage_order) for one in record.stages] == [
        ("scheduling", 1),
        ("preparing", 2),
        ("running", 3),
        ("end", 4),
    ]
    assert all(one.en_message and one.zh_message and one.end_time for one in record.stages)
    assert {one.job_id for one in record.stages} == {done.metadata.id}
    assert [part.name for part in record.stages[2].sub_stages] == ["worker-0"]


def events(cloud: Cloud, job: Any, **query: Any) -> Any:
    return cloud("list_training_job_events", training_job_id=job.metadata.id, **query)


def messages(answer: Any) -> list[str]:
    return [event.message for event in answer.events]


def test_events_tell_the_job_s_life(cloud: Cloud, done: Any) -> None:
    answer = events(cloud, done, order="asc")
    told = messages(answer)
    assert told[0] == "Training job created."
    assert told[-1] == "Training job completed."
    assert "[worker-0] Training started." in told
    assert any(re.fullmatch(r"\[worker-0]\[.*s] Training finished. Exit code 0.", text) for text in told)
    assert (answer.total, answer.limit, answer.offset, answer.order) == (len(told), 50, 0, "asc")
    assert messages(events(cloud, done)) == told[::-1]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+08:00", event.time) for event in answer.events)


def test_events_in_chinese(cloud: Cloud, done: Any) -> None:
    assert messages(events(cloud, done, order="asc", x_language="zh-cn"))[0] == "训练作业已创建。"


def test_events_are_filtered_and_paged(cloud: Cloud, done: Any) -> None:
    told = messages(events(cloud, done, order="asc"))
    assert messages(events(cloud, done, order="asc", pattern="worker-0")) == [
        text for text in told if "worker-0" in text
    ]
    assert messages(events(cloud, done, level="Error")) == []
    pages = [messages(events(cloud, done, order="asc", limit=3, offset=page)) for page in range(len(told))]
    assert [text for page in pages for text in page] == told
    created = done.metadata.create_time
    window = events(cloud, done, start_time=str(created - 1000), end_time=str(created + 86_400_000))
    assert window.total == len(told)
    assert events(cloud, done, start_time="1", end_time="2").events == []


@pytest.mark.parametrize(
    "query", [{"limit": 101}, {"level": "Fatal"}, {"start_time": "1"}, {"pattern": "x" * 257}]
)
def test_bad_requests_for_events(cloud: Cloud, done: Any, query: dict[str, Any]) -> None:
    with refused("ModelArts.50004000", match=next(iter(query)) if "start_time" not in query else "end_time"):
        events(cloud, done, **query)


def test_a_failed_job_s_events_say_why(service: Service, cloud: Cloud) -> None:
    asked = {"topic_urn": "urn:smn:here:topic", "events": ["JobFailed"]}
    job = _run(service, cloud, f"fails-{uuid.uuid4().hex[:8]}", "exit 7", spec={"notification": asked})
    assert "Exit code 7" in "".join(messages(events(cloud, job, level="Error", pattern="worker-0")))
    (notified,) = messages(events(cloud, job, pattern="Notification"))
    assert "JobFailed" in notified
    assert "urn:smn:here:topic" in notified


def test_event_categories(cloud: Cloud) -> None:
    found = cloud("list_event_categories", flavor_type="GPU").event_categories
    assert [one.id for one in found] == [
        "JobStarted",
        "JobCompleted",
        "JobFailed",
        "JobTerminated",
        "JobRestarted",
        "JobHanged",
        "JobPreempted",
    ]
    assert all(one.name and one.description and one.notification is True for one in found)


# Logs


def preview(cloud: Cloud, job_id: str, task: str = "worker-0") -> Any:
    return cloud("show_training_job_logs_preview", training_job_id=job_id, task_id=task)


def test_a_log_in_full(cloud: Cloud, done: Any) -> None:
    answer = preview(cloud, done.metadata.id)
    assert {"first", "second", "third"} <= set(answer.content.splitlines())
    assert answer.current_size == answer.full_size == len(answer.content.encode())


def test_of_a_long_log_the_last_five_megabytes(service: Service, cloud: Cloud) -> None:
    lines = 6 * 1024
    program = f"i=0; while [ $i -lt {lines} ]; do printf '%1023s\\n' $i; i=$((i+1)); done"
    job = _run(service, cloud, f"long-{uuid.uuid4().hex[:8]}", program)
    answer = preview(cloud, job.metadata.id)
    assert answer.full_size >= lines * 1024
    assert (5 << 20) - 1024 <= answer.current_size == len(answer.content) <= 5 << 20
    assert answer.content.split() == [str(n) for n in range(lines - answer.current_size // 1024, lines)]


def test_a_log_that_is_not_there_yet(service: Service, cloud: Cloud) -> None:
    """No body at all: the client then has an empty answer."""
    greedy = {"resource": {"flavor_id": "modelarts.p3.large.public.free", "node_count": 1}}
    mark = uuid.uuid4().hex[:8]
    first = cloud.create(f"holds-{mark}", "sleep 600", spec=greedy).metadata.id
    service.wait(first, until="started")
    waiting = cloud.create(f"waits-{mark}", "true", spec=greedy).metadata.id
    assert preview(cloud, waiting).content is None
    lines = cloud("show_training_job_logs_from_aom", training_job_id=waiting, task_id="worker-0")
    metrics = cloud("show_training_job_metrics", training_job_id=waiting, task_id="worker-0")
    assert (lines.content, metrics.metrics) == (None, None)
    cloud("stop_training_job", training_job_id=waiting, body={"action_type": "terminate"})
    service.wait(waiting)
    with refused("ModelArts.2818"):
        preview(cloud, waiting)
    cloud("stop_training_job", training_job_id=first, body={"action_type": "terminate"})


def test_an_unknown_task_or_job(cloud: Cloud, done: Any) -> None:
    for task in ("worker-1", "worker-00", "worker", "ps-0", "worker-٣", "worker-" + "9" * 40):
        with refused("ModelArts.2788", match="worker-0"):
            preview(cloud, done.metadata.id, task)
    with refused("ModelArts.2775"):
        preview(cloud, str(uuid.uuid4()))


def aom(cloud: Cloud, job: Any, **query: Any) -> Any:
    return cloud(
        "show_training_job_logs_from_aom", training_job_id=job.metadata.id, task_id="worker-0", **query
    )


def test_lines_by_number(service: Service, cloud: Cloud) -> None:
    job = _run(service, cloud, f"lines-{uuid.uuid4().hex[:8]}", "seq 1000 1199")
    whole = preview(cloud, job.metadata.id).content.splitlines()
    newest = aom(cloud, job)
    assert newest.lines == 50
    assert newest.content.splitlines() == whole[::-1][:50]
    assert int(newest.end_line) == len(whole)
    older = aom(cloud, job, base_line=newest.start_line, lines=500)
    assert older.content.splitlines() == whole[::-1][50:]
    assert older.start_line == "1"
    oldest = aom(cloud, job, order="asc", lines=10)
    assert (oldest.start_line, oldest.end_line, oldest.content.splitlines()) == ("1", "10", whole[:10])
    then = aom(cloud, job, order="asc", lines=5, base_line="10")
    assert (then.start_line, then.content.splitlines()) == ("11", whole[10:15])
    nothing = aom(cloud, job, base_line="1")
    assert (nothing.lines, nothing.content) == (0, "")
    for query in ({"lines": 501}, {"lines": 0}, {"base_line": "last"}, {"order": "up"}):
        with refused("ModelArts.2764", match=next(iter(query))):
            aom(cloud, job, **query)


def test_the_last_of_very_many_lines(service: Service, cloud: Cloud) -> None:
    """Lines are counted once, not gone through one by one each time."""
    many = 20_000_000
    command = f"head -c {many} /dev/zero | tr '\\0' '\\n'"
    job = _run(service, cloud, f"newlines-{uuid.uuid4().hex[:8]}", command)
    process = psutil.Process(service.process.pid)  # type: ignore[union-attr]

    def used() -> float:
        return sum(process.cpu_times()[:2])

    before = used()
    last = aom(cloud, job, lines=3)
    first_time = used() - before
    assert int(last.end_line) - int(last.start_line) == 2
    assert int(last.end_line) >= many
    before = used()
    for _ in range(5):
        aom(cloud, job, lines=3, base_line=str(many // 2))
    # Gone through line by line, each would take as long as all of a loop over them does in Python.
    assert max(first_time, (used() - before) / 5) < time_of_a_loop(many)


def time_of_a_loop(times: int) -> float:
    before = time.process_time()
    for _ in range(times):
        pass
    return time.process_time() - before


# Links


def link(cloud: Cloud, job_id: str, kind: str = "", *, as_header: bool = False) -> str:
    """The SDK has no method for it, but sends and signs what it is given."""
    client: Any = cloud.client
    answer = client.do_http_request(
        method="GET",
        resource_path=f"/v2/{{project_id}}/training-jobs/{job_id}/tasks/worker-0/logs/url",
        query_params=[("Content-Type", kind)] if kind and not as_header else [],
        header_params={"Content-Type": kind if as_header else "application/json"},
        response_type="ShowTrainingJobLogsPreviewResponse",
    )
    return json.loads(answer.raw_content)["obs_url"]


def test_a_link_to_view_and_one_to_download(cloud: Cloud, done: Any) -> None:
    content = preview(cloud, done.metadata.id).content.encode()
    for kind, disposition in (("text/plain", "inline"), ("application/octet-stream", "attachment")):
        body, headers = fetch(link(cloud, done.metadata.id, kind))
        assert body == content
        assert headers["Content-Type"].startswith(kind)
        name = f'filename="modelarts-job-{done.metadata.id}-worker-0.log"'
        assert headers["Content-Disposition"] == f"{disposition}; {name}"


def test_the_kind_of_link_may_be_asked_for_by_a_header(cloud: Cloud, done: Any) -> None:
    """The SDK takes `application/octet-stream` for an upload and cannot send it so."""
    assert "type=view" in link(cloud, done.metadata.id, "text/plain", as_header=True)
    with refused("ModelArts.2764", match="Content-Type"):
        link(cloud, done.metadata.id, "text/html")


def test_a_link_leads_nowhere_else(service: Service, cloud: Cloud, done: Any) -> None:
    url = link(cloud, done.metadata.id)
    other = cloud.create(f"other-{uuid.uuid4().hex[:8]}", "echo secret").metadata.id
    service.wait(other)
    for wrong in (
        url.replace(done.metadata.id, other),
        url.replace("type=view", "type=download"),
        url.replace("/default/", "/p2/"),
        url.replace("expires=", "expires=9"),
        url.partition("?")[0],
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(wrong)
        assert caught.value.code == 403
        assert json.load(caught.value)["error_code"] == "ModelArts.0108"


def keys(service: Service, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"{service.endpoint}/turnout/v1/keys{path}",
        method=method,
        data=json.dumps(body).encode() if body else None,
        headers={"Authorization": f"Bearer {make_token(KEY, time.time())}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_link_ends_with_the_key_that_asked_for_it(service: Service, done: Any) -> None:
    made = keys(service, "POST", "", {"project": "default"})
    url = link(Cloud(service, Key(made["id"], made["secret"], "default")), done.metadata.id)
    assert fetch(url)[0]
    keys(service, "DELETE", f"/{made['id']}")
    for refused_url in (url, url.replace(f"key={made['id']}", "key="), url.replace(made["id"], KEY.id)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(refused_url)
        assert (caught.value.code, json.load(caught.value)["error_code"]) == (403, "ModelArts.0108")


# Metrics


def test_metrics_are_six_series_of_equal_length(cloud: Cloud, done: Any) -> None:
    answer = cloud("show_training_job_metrics", training_job_id=done.metadata.id, task_id="worker-0")
    assert {one.metric for one in answer.metrics} == {
        "cpuUsage",
        "memUsage",
        "npuUtil",
        "npuMemUsage",
        "gpuUtil",
        "gpuMemUsage",
    }
    assert {len(one.value) for one in answer.metrics} == {1}


# A job that was started over


@pytest.fixture(scope="module")
def restarted(service: Service, cloud: Cloud) -> Any:
    """Its first attempt failed."""
    retry = {"annotations": {"fault-tolerance/job-unconditional-retry": "true"}}
    program = 'echo attempt $MA_SCHEDULE_CNT; test "$MA_SCHEDULE_CNT" -gt 1'
    return _run(service, cloud, f"again-{uuid.uuid4().hex[:8]}", program, metadata=retry)


def test_every_attempt_s_tasks_are_told(cloud: Cloud, restarted: Any) -> None:
    found = cloud("list_training_job_tasks", training_job_id=restarted.metadata.id).body
    assert [(task.task, task.schedule_count) for task in found] == [("worker-0", 1), ("worker-0", 2)]
    (second,) = cloud("list_training_job_tasks", training_job_id=restarted.metadata.id, schedule_count=2).body
    assert second.schedule_count == 2


def test_a_restart_is_among_the_events_and_stages(cloud: Cloud, restarted: Any) -> None:
    told = messages(events(cloud, restarted, order="asc", level="Warning"))
    assert [text.partition(":")[0] for text in told] == ["Training job is restarted"]
    records = cloud("list_training_job_stages", training_job_id=restarted.metadata.id).running_records
    assert [(one.record_order, len(one.stages)) for one in records] == [(1, 4), (2, 4)]


def test_the_log_holds_all_attempts(cloud: Cloud, restarted: Any) -> None:
    lines = preview(cloud, restarted.metadata.id).content.splitlines()
    assert [line for line in lines if line.startswith("attempt")] == ["attempt 1", "attempt 2"]


# A job of several roles


def test_each_task_of_a_job_of_several_roles_has_its_own_log(service: Service, cloud: Cloud) -> None:
    put(service, "obs://looking/code/learn.py", "import os; print('I am', os.environ['MA_TASK_NAME'])")
    engine = cloud("show_training_job_engines").items[-1].engine_id
    algorithm = {
        "code_dir": "/looking/code/",
        "boot_file": "/looking/code/learn.py",
        "engine": {"engine_id": engine},
    }
    resource = {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}
    roles = ("learner", "worker")
    body = {
        "kind": "job",
        "metadata": {
            "name": f"roles-{uuid.uuid4().hex[:8]}",
            "annotations": {"job_template": "Template RL"},
        },
        "tasks": [{"role": role, "algorithm": algorithm, "task_resource": resource} for role in roles],
    }
    job_id = cloud("create_training_job", body=body).metadata.id
    service.wait(job_id)
    for role in roles:
        assert f"I am {role}" in preview(cloud, job_id, f"{role}-0").content
    (item,) = listed(cloud, one_of("id", "in", job_id), host_ips=["127.0.0.1"]).items
    assert [one.task for one in item.status.task_ips] == ["learner-0", "worker-0"]
    assert any(
        "[learner-0]" in text for text in messages(cloud("list_training_job_events", training_job_id=job_id))
    )
