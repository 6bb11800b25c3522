"""The effects of answered calls survive kills of the service."""

import random
import threading
import time
from collections.abc import Iterator

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException, SdkException
from requests.exceptions import RequestException

from tests.dialects.modelarts.conftest import sdk_home as sdk_home
from tests.dialects.modelarts.driving import Cloud, refused
from tests.running import Service, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 5
CLIENTS = 4


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as one:
        yield one.start()


class Client(threading.Thread):
    """Creates jobs, shows some, deletes some, and records the responses."""

    def __init__(self, service: Service, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.cloud = Cloud(service)
        self.number, self.stop = number, stop
        self.described: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()

    def run(self) -> None:
        chance = random.Random(self.number)
        for count in range(10_000):
            if self.stop.is_set():
                return
            try:
                self._once(f"job-{self.number}-{count}", chance.random())
            except ClientRequestException:
                raise
            except (SdkException, RequestException):
                time.sleep(0.05)  # it is down

    def _once(self, name: str, choice: float) -> None:
        job_id = self.cloud.create(name, metadata={"description": "first"}).metadata.id
        self.described[job_id] = "first"
        self.unsure.add(job_id)
        if choice < 0.5:
            body = {"description": "second"}
            self.cloud("change_training_job_description", training_job_id=job_id, body=body)
            self.described[job_id] = "second"
        if choice < 0.3:
            self.cloud("delete_training_job", training_job_id=job_id)
            self.deleted.add(job_id)
        self.unsure.discard(job_id)


def test_answered_calls_survive_kills_of_the_service(service: Service):
    stop = threading.Event()
    clients = [Client(service, number, stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for _ in range(KILLS):
        time.sleep(random.uniform(0.5, 1.5))
        service.kill()
        service.start()
    stop.set()
    for client in clients:
        client.join()
    cloud = Cloud(service)
    promised = [(job_id, said) for client in clients for job_id, said in client.described.items()]
    deleted = {job_id for client in clients for job_id in client.deleted}
    unsure = {job_id for client in clients for job_id in client.unsure}
    assert len(promised) > 10
    for job_id, description in promised:
        if job_id in deleted:
            with refused("ModelArts.2775"):
                cloud.details(job_id)
        elif job_id not in unsure:
            assert cloud.details(job_id).metadata.description == description
