"""`/` for a browser, `/healthz` for a load balancer, `/metrics` for Prometheus."""

import time
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from turnout import __version__
from turnout.service import Jobs

_STARTED = time.time()


async def page(request: Request) -> Response:
    text = resources.files("turnout.web").joinpath("welcome.html").read_text()
    host = _host(request)
    filled = (
        text.replace("{{version}}", __version__)
        .replace("{{endpoint}}", f"{request.url.scheme}://{host}")
        .replace("{{host}}", host)
    )
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(filled, headers=policy)


def routes(jobs: Jobs) -> list[Route]:
    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers={"Turnout-Version": __version__})

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(_metrics(jobs), media_type="text/plain; version=0.0.4")

    return [Route("/healthz", healthz), Route("/metrics", metrics)]


def _host(request: Request) -> str:
    """As the browser spelled it, if that is a plain host name; it goes into a page."""
    host = request.headers.get("host", "")
    return host if host.replace(".", "").replace(":", "").replace("-", "").isalnum() else "127.0.0.1:8470"


def _metrics(jobs: Jobs) -> str:
    lines = [
        "# HELP turnout_info The version that runs.",
        "# TYPE turnout_info gauge",
        f'turnout_info{{version="{__version__}"}} 1',
        "# HELP turnout_start_time_seconds When the service started.",
        "# TYPE turnout_start_time_seconds gauge",
        f"turnout_start_time_seconds {_STARTED:.3f}",
        "# HELP turnout_engines_ready Whether every engine has told what it runs.",
        "# TYPE turnout_engines_ready gauge",
        f"turnout_engines_ready {int(jobs.engines_ready())}",
        "# HELP turnout_jobs Jobs that have not ended, by state.",
        "# TYPE turnout_jobs gauge",
        *(f'turnout_jobs{{state="{state}"}} {count}' for state, count in sorted(jobs.counts().items())),
        "# HELP turnout_jobs_ended_total Jobs that ended since the service started, by reason.",
        "# TYPE turnout_jobs_ended_total counter",
        *(
            f'turnout_jobs_ended_total{{reason="{why}"}} {count}'
            for why, count in sorted(jobs.ends().items())
        ),
    ]
    return "\n".join(lines) + "\n"
