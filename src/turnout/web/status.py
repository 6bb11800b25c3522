"""`/` for people, `/healthz` for a load balancer, `/metrics` for Prometheus."""

from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from turnout import __version__
from turnout.service import Jobs, Webhooks
from turnout.web import metrics
from turnout.web.metrics import MetricSources

_TEXT = """\
Turnout {version}, a training-job service
  Tencent TI-A       {endpoint}/ (Action=CreateJob, ...)
  Huawei ModelArts   {endpoint}/v2/<project>/training-jobs
  Google Vertex AI   {endpoint}/v1/projects/<project>/locations/<location>/customJobs
  health, metrics    {endpoint}/healthz, {endpoint}/metrics
"""


async def home_text(request: Request) -> Response:
    """A few lines of text for curl. Browsers get them as HTML where the parts of the page were not fetched."""
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


def routes(sources: MetricSources, warnings: list[str]) -> list[Route]:
    """`warnings`: problems for the operator; the caller may change the list later."""
    jobs = sources.jobs

    async def healthz(_: Request) -> Response:
        trouble = jobs.trouble()
        lines = (
            trouble or "ok",
            *(
                f"warning: {warning}"
                for warning in (*warnings, *_cluster_warnings(jobs), *_webhook_warnings(sources.webhooks))
            ),
        )
        status = 503 if trouble else 200
        text = "".join(f"{line}\n" for line in lines)
        return PlainTextResponse(text, status, {"Turnout-Version": __version__})

    async def show_metrics(_: Request) -> Response:
        return PlainTextResponse(await metrics.text(sources), media_type="text/plain; version=0.0.4")

    return [Route("/healthz", healthz), Route("/metrics", show_metrics)]


def _cluster_warnings(jobs: Jobs) -> list[str]:
    """A sentence for each trouble, with the clusters that have it. The others work, so the service is healthy."""
    clusters: dict[str, list[str]] = {}
    for cluster, trouble in jobs.cluster_troubles().items():
        clusters.setdefault(trouble, []).append(cluster)
    return [f"no job starts on {', '.join(names)}: {why}" for why, names in clusters.items() if why]


def _webhook_warnings(webhooks: Webhooks) -> list[str]:
    return [f"webhook {name} does not accept messages: {why}" for name, why in webhooks.troubles().items()]


def _host(request: Request) -> str:
    """The Host header if it is a plain host name, because it goes into a page."""
    host = request.headers.get("host", "")
    return host if host.replace(".", "").replace(":", "").replace("-", "").isalnum() else "127.0.0.1:8470"
