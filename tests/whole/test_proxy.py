"""Behind nginx and Caddy with TLS, as examples/proxy sets them up: signatures, streams, shells, large uploads."""

import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import huaweicloudsdkmodelarts.v1 as sdk
import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.http.http_config import HttpConfig
from tencentcloud.common import credential
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile
from tencentcloud.tia.v20180226 import models, tia_client
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.certificates import Certificate, make_certificate
from tests.cli.programs import program
from tests.dialects.modelarts.driving import job as modelarts_job
from tests.dialects.native.driving import vertex_job
from tests.running import KEY, ROOT, Service, free_port, reachable_directory, running
from tests.web.visitor import Socket
from turnout.access import make_token

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

EXAMPLES = ROOT / "examples" / "proxy"


class Proxy(NamedTuple):
    port: int
    certificate: Certificate
    service: Service

    @property
    def endpoint(self) -> str:
        return f"https://localhost:{self.port}"

    def open(self, path: str, body: Any = None) -> Any:
        """A call with a bearer token. Returns the response."""
        headers = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.endpoint + path, data, headers)
        return urllib.request.urlopen(request, timeout=30, context=self.tls)

    def call(self, path: str, body: Any = None) -> Any:
        with self.open(path, body) as response:
            return json.load(response)

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate.authority))


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    if not (shutil.which(request.param) or shutil.which(request.param, path="/usr/sbin")):
        pytest.skip(f"{request.param} is not installed")
    with running('[server]\ntrusted_proxies = ["127.0.0.1"]\n') as service, reachable_directory() as here:
        service.start()
        found = Proxy(free_port(), make_certificate(here), service)
        command = {"nginx": nginx, "caddy": caddy}[request.param](found, here)
        with (here / "log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"HOME": str(here)}, start_new_session=True
            )
        try:
            wait_until_up(found, process, here / "log")
            yield found
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Caddy waits for its clients on SIGTERM
            process.wait(20)


def nginx(proxy: Proxy, here: Path) -> list[str]:
    """The example, inside the rest of a file for a nginx that needs no directory of the system's."""
    site = filled(proxy, (EXAMPLES / "nginx.conf").read_text())
    site = site.replace("listen 443", f"listen {proxy.port}").replace("turnout.example.org", "localhost")
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{name}_temp_path {here}/{name};\n" for name in names)
    (here / "nginx.conf").write_text(
        f"daemon off;\npid {here}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{ access_log off;\n{places}{site}}}\n"
    )
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-p", str(here), "-c", str(here / "nginx.conf")]


def caddy(proxy: Proxy, here: Path) -> list[str]:
    site = filled(proxy, (EXAMPLES / "Caddyfile").read_text())
    tls = f"tls {proxy.certificate.cert} {proxy.certificate.key}"
    site = site.replace("turnout.example.org {", f"https://localhost:{proxy.port} {{\n\t{tls}")
    (here / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    return ["caddy", "run", "--config", str(here / "Caddyfile")]


def filled(proxy: Proxy, text: str) -> str:
    text = text.replace("127.0.0.1:8470", f"127.0.0.1:{proxy.service.port}")
    text = text.replace("/etc/turnout/cert.pem", str(proxy.certificate.cert))
    return text.replace("/etc/turnout/key.pem", str(proxy.certificate.key))


def wait_until_up(proxy: Proxy, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            return proxy.open("/healthz").close()
        time.sleep(0.05)
    raise AssertionError(f"the proxy does not answer:\n{log.read_text()}")


def test_signatures_of_all_clouds_hold(proxy: Proxy) -> None:
    """They cover the Host header, the path and the query, so the proxy must not change any of these."""
    where = HttpProfile(protocol="https", endpoint=f"localhost:{proxy.port}")
    where.certification = str(proxy.certificate.authority)
    for method in ("TC3-HMAC-SHA256", "HmacSHA256"):
        profile = ClientProfile(signMethod=method, httpProfile=where, language="en-US")
        client = tia_client.TiaClient(credential.Credential(KEY.id, KEY.secret), "ap-beijing", profile)
        request = models.ListJobsRequest()
        request.Cluster = "ap-beijing"
        assert client.ListJobs(request).Jobs == []

    config = HttpConfig.get_default_config()
    config.ssl_ca_cert = str(proxy.certificate.authority)
    huawei: Any = (
        sdk.ModelArtsClient.new_builder()
        .with_http_config(config)
        .with_credentials(BasicCredentials(KEY.id, KEY.secret, "default"))
        .with_endpoint(proxy.endpoint)
        .build()
    )
    created = huawei.create_training_job(
        sdk.CreateTrainingJobRequest(body=modelarts_job("behind-a-proxy", "echo from modelarts"))
    )
    assert created.metadata.name == "behind-a-proxy"

    path = "/v1/projects/default/locations/us-central1/customJobs"
    name = proxy.call(path, vertex_job("vertex", "echo from vertex"))["name"]
    assert proxy.call(f"/v1/{name}")["displayName"] == "vertex"


def test_changes_arrive_while_the_stream_is_open(proxy: Proxy) -> None:
    with proxy.open("/turnout/v1/changes") as stream:
        lines = (line.decode() for line in stream)
        assert any(line.startswith("event: ready") for line in lines)
        proxy.call("/v1/projects/default/locations/us-central1/customJobs", vertex_job("streamed", "true"))
        assert any('"name":"streamed"' in line for line in lines)


def test_a_shell_in_a_browser(proxy: Proxy) -> None:
    """Its link has the scheme and host that the client used, and so does the origin of its page."""
    body = vertex_job("with-shell", "sleep 600")
    body["jobSpec"]["enableWebAccess"] = True
    job = proxy.call("/turnout/v1/jobs", body)["id"]
    proxy.call(f"/turnout/v1/jobs/{job}/wait?for=started&timeout=30")
    link = urlsplit(proxy.call(f"/turnout/v1/jobs/{job}/shells")["uris"]["workerpool0-0"])
    assert f"{link.scheme}://{link.netloc}" == proxy.endpoint
    connection = http.client.HTTPSConnection("localhost", proxy.port, timeout=30, context=proxy.tls)
    connection.request("GET", f"{link.path}?{link.query}")
    page = connection.getresponse()
    text, cookie = page.read().decode(), page.headers["Set-Cookie"]
    connection.close()
    assert "secure" in cookie.lower()
    with connect(
        f"wss://{link.netloc}{link.path}/socket?columns=90&rows=20",
        origin=Origin(proxy.endpoint),
        additional_headers={"Cookie": cookie.partition(";")[0]},
        ssl=proxy.tls,
        proxy=None,
    ) as websocket:
        websocket.send(text.partition('turnout-page-token" content="')[2].partition('"')[0])
        terminal = Socket(websocket)
        terminal.type("echo be''hind; stty size\n")
        terminal.until("behind\r\n20 90")


def test_a_large_upload(proxy: Proxy, tmp_path: Path) -> None:
    """100 MB, up and down again: more than a proxy takes by default, and than the service may hold in memory."""
    environment = os.environ | {
        "TURNOUT_ENDPOINT": proxy.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "SSL_CERT_FILE": str(proxy.certificate.authority),
    }
    block = os.urandom(1 << 20)
    with (tmp_path / "large").open("wb") as file:
        file.writelines(block for _ in range(100))
    for words in (["large", "gs://large/a/b"], ["gs://large/a/b", "back"]):
        subprocess.run([*program("turnout"), "cp", *words], env=environment, cwd=tmp_path, check=True)
    subprocess.run(["cmp", "large", "back"], cwd=tmp_path, check=True)
