"""`/` for people, `/healthz` for a load balancer, `/metrics` for Prometheus."""

import time
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from turnout import __version__
from turnout.service import Jobs

_STARTED = time.time()


_TEXT = """\
Turnout {version}, a training-job service
  Tencent TI-A       {endpoint}/ (Action=CreateJob, ...)
  Huawei ModelArts   {endpoint}/v2/<project>/training-jobs
  Google Vertex AI   {endpoint}/v1/projects/<project>/locations/<location>/customJobs
  health, metrics    {endpoint}/healthz, {endpoint}/metrics
"""


async def page(request: Request) -> Response:
    """A page for browsers, and a few lines of text for curl."""
    host, scheme = _host(request), request.url.scheme
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(_TEXT.format(version=__version__, endpoint=f"{scheme}://{host}"))
    text = resources.files("turnout.web").joinpath("welcome.html").read_text()
    filled = (
        text.replace("{{version}}", __version__)
        .replace("{{endpoint}}", f"{scheme}://{host}")
        .replace("{{scheme}}", scheme)
        .replace("{{host}}", host)
    )
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(filled, headers=policy)


def routes(jobs: Jobs, warnings: list[str]) -> list[Route]:
    """`warnings`: problems for the operator; the caller may change the list later."""

    async def healthz(_: Request) -> Response:
        trouble = jobs.trouble()
        lines = (
            trouble or "ok",
            *(f"warning: {warning}" for warning in (*warnings, *_cluster_warnings(jobs))),
        )
        status = 503 if trouble else 200
        text = "".join(f"{line}\n" for line in lines)
        return PlainTextResponse(text, status, {"Turnout-Version": __version__})

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(_metrics(jobs), media_type="text/plain; version=0.0.4")

    return [Route("/healthz", healthz), Route("/metrics", metrics)]


def _cluster_warnings(jobs: Jobs) -> list[str]:
    """A sentence for each trouble, with the clusters that have it. The others work, so the service is healthy."""
    clusters: dict[str, list[str]] = {}
    for cluster, trouble in jobs.cluster_troubles().items():
        clusters.setdefault(trouble, []).append(cluster)
    return [f"no job starts on {', '.join(names)}: {why}" for why, names in clusters.items() if why]


def _host(request: Request) -> str:
    """The Host header if it is a plain host name, because it goes into a page."""
    host = request.headers.get("host", "")
    return host if host.replace(".", "").replace(":", "").replace("-", "").isalnum() else "127.0.0.1:8470"


def _metrics(jobs: Jobs) -> str:
    troubles = jobs.cluster_troubles()
    lines = [
        "# HELP turnout_info The version that runs.",
        "# TYPE turnout_info gauge",
        f'turnout_info{{version="{__version__}"}} 1',
        "# HELP turnout_start_time_seconds When the service started.",
        "# TYPE turnout_start_time_seconds gauge",
        f"turnout_start_time_seconds {_STARTED:.3f}",
        "# HELP turnout_engines_ready Whether every cluster starts jobs.",
        "# TYPE turnout_engines_ready gauge",
        f"turnout_engines_ready {int(not any(troubles.values()))}",
        "# HELP turnout_cluster_ready Whether the cluster starts jobs.",
        "# TYPE turnout_cluster_ready gauge",
        *(f'turnout_cluster_ready{{cluster="{name}"}} {int(not why)}' for name, why in troubles.items()),
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
