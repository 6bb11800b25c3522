"""The door on a port of its own, in a thread, over buckets that every user can reach."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import uvicorn
from botocore.config import Config

from tests.running import reachable_directory
from turnout.access import Key, Keys
from turnout.bodies import TOTAL, Bodies
from turnout.gateways.s3.app import app
from turnout.storage import RemoteBuckets, Storage
from turnout.storage.clients import client_buckets
from turnout.web import LimitedProtocol

ROOT = Key("AKIDtest", "a-secret-for-tests", "default", root=True)
OTHER = Key("AKIDother", "another-secret", "other")
THIRD = Key("AKIDthird", "a-third-secret", "third")


class SomeKeys(Keys):
    def __init__(self, *keys: Key) -> None:
        super().__init__(keys[0])
        self._keys = {key.id: key for key in keys}


class Gateway:
    def __init__(self, buckets: Path, remote: RemoteBuckets = RemoteBuckets()) -> None:  # noqa: B008
        self.buckets = buckets
        self.storage = Storage(buckets, [], buckets.parent, None, remote=remote)
        self.embedded = self.storage.embedded
        self.bodies = Bodies()
        self.port = 0
        self.clock = time.time

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: Key = ROOT, secret: str = "", **options):
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=key.id,
            aws_secret_access_key=secret or key.secret,
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}, **options),
        )

    def environment(self, key: Key = ROOT) -> dict[str, str]:
        """For commands."""
        return {
            "AWS_ACCESS_KEY_ID": key.id,
            "AWS_SECRET_ACCESS_KEY": key.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    def leftovers(self) -> list[str]:
        uploads = self.buckets / ".uploads"
        return [path.name for path in uploads.iterdir()] if uploads.exists() else []


@contextlib.contextmanager
def open_gateway(
    no_auth: bool = False,
    body_bytes: int = TOTAL,
    remote: RemoteBuckets = RemoteBuckets(),  # noqa: B008
) -> Iterator[Gateway]:
    with reachable_directory() as place, socket.create_server(("127.0.0.1", 0)) as listener:
        gateway = Gateway(place / "buckets", remote)
        gateway.port = listener.getsockname()[1]
        gateway.bodies = Bodies(body_bytes)
        keys = SomeKeys(ROOT, OTHER, THIRD)
        serve = app(client_buckets(gateway.storage), keys, lambda: gateway.clock(), gateway.bodies, no_auth)
        server = uvicorn.Server(
            uvicorn.Config(serve, http=LimitedProtocol, ws="none", lifespan="off", log_level="warning")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield gateway
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with open_gateway() as one:
        yield one
