"""The stream of changes: who sees what, and how it is continued."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.native.driving import Client, Event, events, vertex_job
from tests.running import Service, running


def until_ended(stream: Iterator[Event], job_id: str) -> list[Event]:
    """The events of one job up to its end."""
    found: list[Event] = []
    for event in stream:
        if event.data.get("id") == job_id:
            found.append(event)
            if event.kind == "change" and event.data["ended"]:
                return found
    raise AssertionError(f"the stream ended: {found}")


def test_a_stream_shows_a_job_from_its_creation_to_its_deletion(client: Client) -> None:
    with client.open("GET", "/changes") as response:
        stream = events(response)
        assert next(stream).kind == "ready"
        job = client.post("/jobs", vertex_job("watched", "sleep 0.3"))
        seen = until_ended(stream, job["id"])
        states = [event.data["state"] for event in seen]
        assert (states[-1], "running" in states) == ("succeeded", True)
        client.send("DELETE", f"/jobs/{job['id']}")
        last = next(event for event in stream if event.kind == "deleted")
        assert last.data == {"id": job["id"]}


def test_a_key_sees_only_the_changes_of_its_project(service: Service, client: Client) -> None:
    other = client.other("changes")
    with other.open("GET", "/changes") as response:
        stream = events(response)
        assert next(stream).kind == "ready"
        hidden = client.post("/jobs", vertex_job("hidden"))
        service.wait(hidden["id"])
        own = other.post("/jobs", vertex_job("own"))
        found: list[Any] = []
        for event in stream:
            found.append(event.data["project"])
            if event.data["id"] == own["id"] and event.data["ended"]:
                break
        assert set(found) == {"changes"}


def test_a_stream_continues_where_it_broke_off(service: Service, client: Client) -> None:
    with client.open("GET", "/changes") as response:
        first = next(events(response))
    job = client.post("/jobs", vertex_job("missed"))
    service.wait(job["id"])
    with client.open("GET", "/changes", last_event_id=first.id) as response:
        [event] = until_ended(events(response), job["id"])
        assert event.data["state"] == "succeeded"
    with client.open("GET", "/changes", last_event_id=event.id) as response:
        stream = events(response)
        following = client.post("/jobs", vertex_job("following"))
        assert next(stream).data["id"] == following["id"]


@pytest.mark.parametrize("after", ["0badf00d-5", "x", "0badf00d-" + "9" * 30])
def test_an_id_of_another_run_asks_the_reader_to_read_the_list_again(client: Client, after: str) -> None:
    with client.open("GET", "/changes", last_event_id=after) as response:
        assert next(events(response)).kind == "reset"


def test_a_stream_ends_with_the_service() -> None:
    with running() as service:
        service.start()
        with Client(service).open("GET", "/changes") as response:
            stream = events(response)
            assert next(stream).kind == "ready"
            assert service.terminate() == 0
            assert list(stream) == []
