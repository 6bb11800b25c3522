"""A remote engine on a fake cluster, with the runner gateway on a port of its own."""

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any, Self

import uvicorn

from tests.certificates import Certificate
from tests.engines.harness import MASTER, TIMEOUT, Harness
from tests.engines.remote.fake_cluster import FakeCluster
from turnout.bodies import Bodies
from turnout.engines.remote import Cluster, RemoteEngine, RemoteSettings, RunnerCall
from turnout.gateways import runner as runner_gateway
from turnout.paths import Paths
from turnout.runner import archive
from turnout.storage import Storage
from turnout.web import tls

__all__ = ["MASTER", "TIMEOUT", "RemoteHarness"]


class RemoteHarness(Harness):
    engine: RemoteEngine

    def __init__(self, base_dir: Path, **settings: Any) -> None:
        super().__init__()
        self.paths = Paths(base_dir / "data")
        self.paths.attempts.mkdir(parents=True)
        scratch = base_dir / "nodes"
        scratch.mkdir()
        self.cluster = FakeCluster(scratch)
        self.storage = Storage(self.paths.buckets, [], self.paths.data, None)
        self.storage.open()
        self.archive, self.digest = archive.build(self.paths.data)
        self.host = "127.0.0.1"
        self._certificate: Certificate | None = settings.pop("certificate", None)
        self._settings = settings
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.runner_port = self.port
        """At which runners reach the gateway."""

    def make_engine(self) -> RemoteEngine:
        return self.engine_of(self.cluster)

    def engine_of(self, cluster: Cluster) -> RemoteEngine:
        scheme, fingerprint = "http", ""
        if self._certificate:
            scheme, fingerprint = (
                "https",
                tls.fingerprint(tls.read(self._certificate.cert, self._certificate.key)),
            )
        endpoint = f"{scheme}://{self.host}:{self.runner_port}"
        call = RunnerCall(endpoint, "fake", "", fingerprint, str(self.archive), self.digest, 60)
        settings = RemoteSettings("fake", self.paths, call, **self._settings)
        return RemoteEngine(settings, cluster, self.storage)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.serve()
        return self

    async def serve(self) -> None:
        """Starts the gateway."""
        app = runner_gateway.app([self.engine.calls], Bodies())
        one = self._certificate
        files: dict[str, Any] = {"ssl_certfile": one.cert, "ssl_keyfile": one.key} if one else {}
        config = uvicorn.Config(
            app, host=self.host, port=self.port, log_level="error", lifespan="off", ws="none", **files
        )
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._serving = asyncio.create_task(self._server._serve())
        async with asyncio.timeout(TIMEOUT):
            while not self._server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def stop_serving(self) -> None:
        self.engine.stopping()
        self._server.should_exit = self._server.force_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving

    async def disconnect(self) -> None:
        await self.stop_serving()
        await super().disconnect()

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            await self.cluster.kill_all()
