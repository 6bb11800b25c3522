"""The log of a job of any API: pages, search, download."""

from typing import Any

import pytest

from tests.dialects.native.driving import Client, vertex_job
from tests.dialects.vertex import jobs as vertex_jobs
from tests.running import Service

SCRIPT = 'for n in $(seq 1 20); do echo "line $n"; done; echo "Error: nothing" >&2'


@pytest.fixture(scope="module")
def job(service: Service, client: Client) -> Any:
    """Two replicas in two pools; only the second prints an error."""
    quiet = vertex_jobs.container(command=["/bin/sh", "-c", "echo quiet; sleep 0.5"])
    loud = vertex_jobs.container(command=["/bin/sh", "-c", SCRIPT])
    made = client.post("/jobs", vertex_jobs.job(quiet, loud, displayName='two "pools"/é'))
    return service.wait(made["id"])


def texts(page: Any) -> list[str]:
    return [line["text"] for line in page["lines"]]


def test_pages_of_lines_are_the_whole_log_in_both_directions(client: Client, job: Any) -> None:
    path = f"/jobs/{job['id']}/logs/lines"
    whole = texts(client.get(path))
    assert len(whole) == 22
    for back in ("false", "true"):
        found: list[str] = []
        cursor = ""
        while True:
            page = client.get(path, limit="3", back=back, **({"cursor": cursor} if cursor else {}))
            found += texts(page)
            cursor = page["next"]
            if page["over"]:
                break
        assert found == (whole if back == "false" else whole[::-1])


def test_the_lines_of_one_replica(client: Client, job: Any) -> None:
    assert texts(client.get(f"/jobs/{job['id']}/logs/lines", replica="workerpool0-0")) == ["quiet"]
    answer = client.send("GET", f"/jobs/{job['id']}/logs/lines", replica="ps-0")
    assert answer.status == 404
    assert answer.error == "replica: the job has no 'ps-0'; it has workerpool0-0, workerpool1-0"


def test_a_search_finds_lines_whatever_their_case(client: Client, job: Any) -> None:
    path = f"/jobs/{job['id']}/logs/lines"
    [line] = client.get(path, search="error:")["lines"]
    assert (line["text"], line["replica"], line["stream"]) == ("Error: nothing", "workerpool1-0", "stderr")
    first = client.get(path, search="line 1", limit="2")
    assert (texts(first), first["over"]) == (["line 1", "line 10"], False)
    rest = client.get(path, search="line 1", cursor=first["next"])
    assert (texts(rest), rest["over"]) == ([f"line {n}" for n in range(11, 20)], True)


def test_lines_that_look_like_errors(client: Client, job: Any) -> None:
    path = f"/jobs/{job['id']}/logs/lines"
    assert texts(client.get(path, errors="true")) == ["Error: nothing"]
    assert texts(client.get(path, errors="true", search="something")) == []
    assert "back: must be false" in client.send("GET", path, errors="true", back="true").error


def test_an_attempt_is_a_part_of_the_log(client: Client, job: Any) -> None:
    path = f"/jobs/{job['id']}/logs/lines"
    page = client.get(path, attempt="1")
    assert len(page["lines"]) == 22
    assert {line["attempt"] for line in page["lines"]} == {1}
    assert len({line["id"] for line in page["lines"]}) == 22
    assert client.get(path, attempt="2")["lines"] == []
    assert "attempt: must be a number" in client.send("GET", path, attempt="last").error


def test_a_place_in_the_log_for_a_scroll_bar(client: Client, job: Any) -> None:
    path, replica = f"/jobs/{job['id']}/logs", "workerpool1-0"
    whole = client.get(f"{path}/extent", replica=replica)
    printed = sum(len(f"line {n}\n") for n in range(1, 21)) + len("Error: nothing\n")
    assert (whole["size"], whole["position"]) == (printed, 0)
    last = client.get(f"{path}/lines", replica=replica, back="true", limit="1")["lines"][0]
    end = client.get(f"{path}/extent", replica=replica, at=last["id"].partition(".")[0])
    assert end["position"] > printed // 2
    middle = client.get(f"{path}/extent", replica=replica, position=str(printed // 2))
    assert 0 < middle["position"] <= printed // 2
    assert texts(client.get(f"{path}/lines", replica=replica, since=middle["at"]))[-1] == last["text"]
    assert client.get(f"{path}/extent")["size"] == printed + len("quiet\n")


def test_a_download_is_a_file_with_the_jobs_name(client: Client, job: Any) -> None:
    with client.open("GET", f"/jobs/{job['id']}/logs/download", replica="workerpool0-0") as answer:
        assert answer.read() == b"quiet\n"
        disposition = answer.headers["Content-Disposition"]
        assert disposition == "attachment; filename*=UTF-8''two%20%22pools%22%2F%C3%A9-workerpool0-0.log"
    with client.open("GET", f"/jobs/{job['id']}/logs/download") as answer:
        lines = answer.read().decode().splitlines()
    assert "workerpool0-0 | quiet" in lines
    assert "workerpool1-0 | line 20" in lines


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "-1"}, "limit: must be a whole number from 1 to 5000, not '-1'"),
        ({"back": "yes"}, "back: must be true or false, not 'yes'"),
        ({"search": "x", "back": "true"}, "back: must be false with search"),
        ({"search": "x" * 1001}, "search: has more than 1000 characters"),
        ({"since": "noon"}, "since: must be a time ago"),
        ({"cursor": "AAAA"}, "the cursor was not issued by this service"),
    ],
)
def test_a_wrong_query_of_lines_is_refused(
    client: Client, job: Any, query: dict[str, str], message: str
) -> None:
    answer = client.send("GET", f"/jobs/{job['id']}/logs/lines", **query)
    assert answer.status == 400
    assert answer.error.startswith(message)


def test_a_job_that_has_not_started_has_no_lines(service: Service, client: Client) -> None:
    holds = client.post("/jobs", vertex_job("holds", "sleep 600", gpus=1))
    service.wait(holds["id"], "started")
    waits = client.post("/jobs", vertex_job("waits", gpus=1))
    page = client.get(f"/jobs/{waits['id']}/logs/lines", search="x")
    assert (page["lines"], page["over"]) == ([], True)
