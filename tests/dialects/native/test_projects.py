"""Projects: quotas, weights, and what each uses; root sees all, a key its own."""

from collections.abc import Iterator

import pytest

from tests.dialects.native.driving import Client, vertex_job
from tests.running import Service, running

SETTINGS = """
[projects.vision]
jobs = 1
weight = 2.5
memory = 64000000000
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running(SETTINGS) as started:
        yield started.start()


def test_projects_say_what_they_may_use_and_what_they_use(service: Service) -> None:
    root = Client(service)
    vision = root.other("vision")
    runs = vision.post("/jobs", vertex_job("runs", "sleep 600"))
    service.wait(runs["id"], "started")
    vision.post("/jobs", vertex_job("waits"))

    found = {one["name"]: one for one in root.get("/projects")["projects"]}
    assert set(found) == {"default", "vision"}
    shown = found["vision"]
    assert (shown["keys"], shown["running"], shown["waiting"]) == (1, 1, 1)
    assert shown["uses"]["cpu"] > 0
    assert (shown["quota"]["jobs"], shown["quota"]["weight"], shown["quota"]["gpus"]) == (1, 2.5, None)
    assert (found["default"]["running"], found["default"]["quota"]["weight"]) == (0, 1)

    assert [one["name"] for one in vision.get("/projects")["projects"]] == ["vision"]
    assert [one["name"] for one in root.get("/projects", project="vision")["projects"]] == ["vision"]
