"""The list of the jobs of all APIs: filter, order, cursor, and who sees what."""

import pytest

from tests.dialects.native.driving import Client, create_vertex
from tests.running import Service


@pytest.fixture(scope="module")
def other(client: Client) -> Client:
    return client.other("speech")


@pytest.fixture(scope="module", autouse=True)
def jobs(service: Service, client: Client, other: Client) -> None:
    """Two jobs of the root's project, one of another, and of two that want the GPU one waits."""
    service.create("tia-fails", "sh", "-c", "exit 3")
    service.wait("tia-fails")
    create_vertex(client, "vertex-ends", labels={"team": "vision"})
    service.wait("vertex-ends")
    create_vertex(other, "theirs", project="speech")
    client.get("/jobs/theirs/wait", project="speech")
    create_vertex(client, "gpu-holds", "sleep 600", gpus=1)
    service.wait("gpu-holds", "started")
    create_vertex(client, "gpu-waits", gpus=1)


def test_jobs_of_all_apis_are_in_one_list_the_newest_first(client: Client) -> None:
    assert client.names(project="default") == ["gpu-waits", "gpu-holds", "vertex-ends", "tia-fails"]


def test_root_sees_all_projects_and_a_key_its_own(client: Client, other: Client) -> None:
    assert "theirs" in client.names()
    assert "tia-fails" in client.names()
    assert other.names() == ["theirs"]
    assert client.names(project="speech") == ["theirs"]
    assert other.send("GET", "/jobs", project="default").status == 403


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"api": "tia"}, ["tia-fails"]),
        ({"state": "failed,succeeded"}, ["vertex-ends", "tia-fails"]),
        ({"state": "live"}, ["gpu-waits", "gpu-holds"]),
        ({"name": "gpu"}, ["gpu-waits", "gpu-holds"]),
        ({"name": "*-ends"}, ["vertex-ends"]),
        ({"label": "team=vision"}, ["vertex-ends"]),
        ({"label": "team"}, ["vertex-ends"]),
        ({"label": "team=speech"}, []),
        ({"cluster": "none"}, []),
        ({"until": "1h"}, []),
        ({"since": "1h", "api": "tia"}, ["tia-fails"]),
        ({"since": "2020-01-01T00:00:00Z", "state": "running"}, ["gpu-holds"]),
        ({"ended_since": "2020-01-01", "order": "ended"}, ["tia-fails", "vertex-ends"]),
        ({"order": "name"}, ["gpu-holds", "gpu-waits", "tia-fails", "vertex-ends"]),
    ],
)
def test_the_query_of_the_url_filters_and_orders(
    client: Client, query: dict[str, str], names: list[str]
) -> None:
    assert client.names(project="default", **query) == names


@pytest.mark.parametrize("order", ["-created", "created", "name", "-started", "started", "-ended", "ended"])
def test_the_pages_of_every_order_are_the_whole_list(client: Client, order: str) -> None:
    whole = client.names(order=order)
    found, cursor = [], ""
    while True:
        page = client.get("/jobs", order=order, limit="1", **({"cursor": cursor} if cursor else {}))
        found += [job["name"] for job in page["jobs"]]
        cursor = page["next"]
        if not cursor:
            break
    assert found == whole
    assert len(whole) == 5


def test_a_cursor_works_only_for_the_list_that_it_came_from(client: Client, other: Client) -> None:
    cursor = client.get("/jobs", limit="1")["next"]
    for query in ({"state": "failed"}, {"order": "name"}, {"project": "default"}):
        answer = client.send("GET", "/jobs", cursor=cursor, **query)
        assert answer.status == 400
        assert answer.error.startswith("cursor: must be exactly the `next`")
    assert other.send("GET", "/jobs", cursor=cursor).status == 400
    assert client.send("GET", "/jobs", cursor="训练").status == 400


def test_a_waiting_job_says_what_it_waits_for(client: Client) -> None:
    waits, holds = client.get("/jobs", name="gpu-")["jobs"]
    assert waits["state"] == "queued"
    assert waits["waits_for"].startswith("place 1 of 1: needs ")
    assert waits["waits_for"].endswith("1 GPU more")
    assert (holds["state"], holds["waits_for"]) == ("running", "")


def test_a_row_has_the_labels_that_users_gave(client: Client) -> None:
    [row] = client.get("/jobs", label="team=vision")["jobs"]
    assert row["labels"] == {"team": "vision"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"state": "runing"}, "state: must be one or more of queued, preparing, running"),
        ({"api": "sagemaker"}, "api: must be one or more of tia, modelarts, vertex, not 'sagemaker'"),
        ({"order": "size"}, "order: must be one of created,"),
        ({"limit": "0"}, "limit: must be a whole number from 1 to 500, not '0'"),
        ({"limit": "９"}, "limit: must be"),
        ({"since": "yesterday"}, "since: must be a time ago such as 30m"),
        ({"since": "9999-12-31T23:59:59-23:59"}, ""),
        ({"until": "0001-01-01T00:00:00+23:59"}, ""),
        ({"label": "=x"}, "label: must be `key` or `key=value`"),
        ({"name": "*" * 900}, ""),
        ({"name": "a*b*c*d*e*f*g*h*i*j*k"}, "a pattern of the filter has more than 8 *"),
        ({"name": "x" * 1001}, "name: has more than 1000 characters"),
        ({"name": "\0\ud83d"}, ""),
        ({"stat": "failed"}, "stat: unknown parameter; use one of api, state, name,"),
    ],
)
def test_a_wrong_query_is_refused_and_no_query_is_an_internal_error(
    client: Client, query: dict[str, str], message: str
) -> None:
    query = {name: value.encode("utf-8", "surrogatepass").decode("latin-1") for name, value in query.items()}
    answer = client.send("GET", "/jobs", **query)
    if message:
        assert answer.status == 400
        assert answer.error.startswith(message)
    else:
        assert answer.status in (200, 400)
