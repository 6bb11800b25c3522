"""One job, with everything about it."""

from tests.dialects.native.driving import Client, vertex_job
from tests.running import Service


def test_a_job_has_its_spec_document_events_and_explanation(service: Service, client: Client) -> None:
    made = client.post("/jobs", vertex_job("shown", "echo seen; exit 4", labels={"team": "vision"}))
    service.wait(made["id"])
    job = client.get(f"/jobs/{made['id']}")
    assert (job["state"], job["reason"], job["priority"]) == ("failed", "program failed", 1)
    assert job["labels"] == {"team": "vision"}
    assert job["document"]["displayName"] == "shown"
    assert [role["name"] for role in job["spec"]["roles"]] == ["workerpool0"]
    assert "wrapped_key" not in job["spec"]
    assert [event["kind"] for event in job["events"]][:1] == ["created"]
    assert "exited with code 4" in " ".join(job["why"])
    assert [replica["exit_code"] for replica in job["replicas"]] == [4]
    assert job["attempts"] == []
    assert job["last_lines"]["lines"] == ["seen"]


def test_the_links_of_a_job_work_for_root_and_for_its_project(service: Service, client: Client) -> None:
    other = client.other("links")
    made = other.post("/jobs", vertex_job("linked"))
    other.get(f"/jobs/{made['id']}/wait")
    for name, link in other.get(f"/jobs/{made['id']}")["links"].items():
        for caller in (client, other):
            with caller.open("GET", link.removeprefix("/turnout/v1")) as answer:
                assert answer.status == 200, name


def test_samples_are_by_replica_and_a_wrong_replica_is_named(service: Service, client: Client) -> None:
    made = client.post("/jobs", vertex_job("sampled"))
    service.wait(made["id"])
    assert list(client.get(f"/jobs/{made['id']}/samples")["samples"]) == ["workerpool0-0"]
    answer = client.send("GET", f"/jobs/{made['id']}/samples", replica="ps-0")
    assert (answer.status, answer.error) == (404, "replica: the job has no 'ps-0'; it has workerpool0-0")
    assert client.get(f"/jobs/{made['id']}/metrics") == {"trials": {}}


def test_a_job_of_another_project_is_not_found(client: Client) -> None:
    made = client.post("/jobs", vertex_job("hidden"))
    stranger = client.other("strangers")
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("GET", "/samples"), ("GET", "/metrics"), ("GET", "/logs"),
        ("POST", "/stop"), ("POST", "/clone"), ("POST", "/priority"),
    ):  # fmt: skip
        body = b'{"priority": 2}' if path == "/priority" else b"{}" if method == "POST" else None
        assert stranger.send(method, f"/jobs/{made['id']}{path}", body).status == 404, path
