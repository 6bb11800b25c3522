"""A shell and a dashboard: links of Vertex' API, opened in a real browser."""

from pathlib import Path

import pytest

from tests.running import Service
from tests.web.browser import browser
from tests.web.custom_jobs import create, vertex

pytestmark = pytest.mark.slow

WAITS = "import time; time.sleep(1000)"
PAGE = """
import http.server, os
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>loss 0.1</h1><p id=x></p><script>fetch('/data').then(r => r.text()).then"
            b"(t => x.textContent = 'fetched ' + t.length)</script>" if self.path == "/" else b"12345")
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["AIP_DASHBOARD_PORT"])), Page).serve_forever()
"""


def test_a_terminal_in_a_browser(service: Service, tmp_path: Path) -> None:
    job = create(service, WAITS, enableWebAccess=True)
    job_id = job["name"].rpartition("/")[2]
    link = vertex(service, "GET", job["name"])["webAccessUris"]["workerpool0-0"]
    with browser(tmp_path) as tab:
        tab.go(link)
        tab.wait_for("connected")
        tab.enter("echo id=$CLOUD_ML_JOB_ID")
        tab.wait_for(f"id={job_id}")
        assert "ticket" not in tab.evaluate("location.href")

        # What is typed while the shell still reads would be edited by it.
        tab.enter("echo ty''ping; cat -v")
        tab.wait_for("typing")
        tab.press("ArrowUp", 38)
        tab.press("c", 67, modifiers=1)
        tab.type("grüße 日本")
        tab.press("Enter", 13)
        tab.wait_for("^[[A^[c")
        tab.press("c", 67, modifiers=2)
        tab.wait_for("^C")
        tab.enter("seq 300000; printf '\\e[?1049h\\e[Hfull'; sleep 1; printf '\\e[?1049l'; echo ba''ck")
        tab.wait_for("full")
        assert "299999" in tab.wait_for("back")

        tab.enter("trap 'echo size $(stty size)' WINCH; clear; echo re''ady")
        tab.wait_for("ready")
        window = {"width": 600, "height": 300, "deviceScaleFactor": 1, "mobile": False}
        tab.call("Emulation.setDeviceMetricsOverride", **window)
        # Other changes of the page's size may come first.
        small = "(document.body.innerText.match(/size [12]?\\d [1-7]?\\d\\s/) ?? [''])[0]"
        _, rows, columns = tab.wait_for("size ", small).split()
        assert int(columns) < 80
        assert int(rows) < 22
        tab.picture(tmp_path / "terminal.png")

        vertex(service, "POST", job["name"] + ":cancel", {})
        tab.wait_for("[the job ended]")
        tab.go(link)
        tab.wait_for("ask for a new one")


def test_a_dashboard_in_a_browser(service: Service, tmp_path: Path) -> None:
    job = create(service, PAGE, enableDashboardAccess=True)
    link = vertex(service, "GET", job["name"])["webAccessUris"]["workerpool0-0:dashboard"]
    with browser(tmp_path) as tab:
        tab.go(link)
        assert "loss 0.1" in tab.wait_for("fetched 5")
        assert "ticket" not in tab.evaluate("location.href")
        vertex(service, "POST", job["name"] + ":cancel", {})
