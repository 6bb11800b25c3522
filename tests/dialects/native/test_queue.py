"""The queue: capacity, who holds what, who waits for what; and what a key sees of others."""

from tests.dialects.native.driving import Client, vertex_job
from tests.running import Service


def test_the_queue_says_who_holds_and_who_waits(service: Service, client: Client) -> None:
    other = client.other("queued")
    holds = client.post("/jobs", vertex_job("holds", "sleep 600", gpus=1))
    service.wait(holds["id"], "started")
    waits = other.post("/jobs", vertex_job("waits", gpus=1))

    [engine] = client.get("/queue")["engines"]
    assert (engine["engine"], engine["trouble"]) == ("local", "")
    assert "ap-beijing" in engine["clusters"]
    assert (engine["capacity"]["gpus"], engine["free"]["gpus"]) == (1, 0)
    [holder], [waiter] = engine["holding"], engine["waiting"]
    assert (holder["id"], holder["holds"]["gpus"], len(holder["nodes"])) == (holds["id"], 1, 1)
    assert (waiter["id"], waiter["place"], waiter["needs"]["gpus"]) == (waits["id"], 1, 1)
    assert waiter["waits_for"].startswith("place 1 of 1: needs")

    [engine] = other.get("/queue")["engines"]
    assert (engine["holding"], engine["holding_count"], engine["held_by_others"]["gpus"]) == ([], 1, 1)
    assert [waiter["name"] for waiter in engine["waiting"]] == ["waits"]
    [engine] = client.get("/queue", project="default")["engines"]
    assert (engine["waiting"], engine["waiting_count"]) == ([], 1)
