"""Shells in jobs have the keys of their job, and no longer than it."""

from collections.abc import Iterator

import pytest

from tests.gateways.jobs.client import CLIENT
from tests.gateways.jobs.test_refused import key_of, status, until
from tests.running import Service, running
from tests.web.visitor import open_page

READ = CLIENT + 'print("object", *read("data", "x", token()))'


@pytest.fixture(scope="module", params=["private", "none"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    engine = 'sandbox = "none"' if request.param == "none" else 'network = "private"'
    with running(f"[engines.local]\n{engine}\n") as one:
        one.start()
        one.put("gs://data/x", "hello")
        yield one


def test_a_shell_uses_the_keys_until_its_job_ends(service: Service):
    service.create("shown", "sh", "-c", "echo up; exec sleep 1000", Debug=True)
    service.wait("shown", "started")
    key = key_of(service, "shown")
    link = service.native("/jobs/shown/shells")["uris"]["master-0"]
    with open_page(link).socket() as socket:
        socket.until("$ ")
        socket.type("stty -echo; cat > read.py <<'END'\n" + READ + "\nEND\n")
        socket.type("python3 read.py; echo id $AWS_ACCESS_KEY_ID\n")
        socket.until(f"id {key.id}")
        assert "object 200 hello" in socket.seen
        assert status(service, "/storage/v1/b/data/o/x", key.token) == 200
        service.delete("shown")
        assert socket.rest() == {"exit": 137, "reason": "the job ended"}
    # The program may use the time that it has for its end.
    until(lambda: status(service, "/storage/v1/b/data/o/x", key.token) in (401, 403))
