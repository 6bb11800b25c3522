"""The views of searches, the cluster, storage, keys and projects, in a real browser with real jobs and objects."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.native.driving import Client, vertex_job
from tests.dialects.vertex import jobs as vertex_jobs
from tests.running import KEY, Service, running
from tests.web.browser import browser
from tests.web.page_driving import Visit
from turnout.access import Key

pytestmark = pytest.mark.slow

MARKUP = "<b>optimizer</b>"
HOSTILE = '<img src=x onerror="document.title=1">'
SETTINGS = """
[engines.local]
gpus = 2

[projects.vision]
gpus = 1
weight = 3
"""
TRIAL = """
import sys, time
told = dict(one[2:].split("=", 1) for one in sys.argv[1:])
for step in (1, 2, 3):
    print("TURNOUT_METRIC accuracy=%f step=%d" % (step - (float(told["lr"]) - 0.3) ** 2, step), flush=True)
time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running(SETTINGS) as started:
        yield started.start()


@pytest.fixture(scope="module")
def client(service: Service) -> Client:
    return Client(service)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def signed_in(service: Service, home: Path) -> Iterator[Visit]:
    with browser(home) as tab:
        tab.watch()
        tab.resize(1280, 900)
        visit = Visit(tab, service)
        visit.sign_in(KEY)
        yield visit


@pytest.fixture
def visit(signed_in: Visit) -> Iterator[Visit]:
    """After the test, nothing may have been refused by the page's policy, and no script may have failed."""
    signed_in.tab.resize(1280, 900)
    yield signed_in
    # That the service refused something is no problem: the page says what it answered.
    assert not [one for one in signed_in.tab.problems if "Failed to load resource" not in one]
    assert not signed_in.count("img")


def search(name: str, trials: int) -> dict[str, Any]:
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "lr", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
            {"parameterId": MARKUP, "categoricalValueSpec": {"values": ["adam", HOSTILE]}},
        ],
        "algorithm": "RANDOM_SEARCH",
    }
    pool = vertex_jobs.container(command=["python3", "-c", TRIAL])
    return {
        "displayName": name,
        "studySpec": study,
        "maxTrialCount": trials,
        "parallelTrialCount": 2,
        "trialJobSpec": {"workerPoolSpecs": [pool]},
    }


@pytest.fixture(scope="module")
def searched(client: Client) -> dict[str, Any]:
    """A search that has just begun."""
    return client.post("/jobs", search("tune", 8))


def test_a_search_is_shown_live(visit: Visit, searched: dict[str, Any]) -> None:
    visit.show("/searches", "tune")
    visit.click("a", "tune")
    visit.tab.wait_for("Parallel coordinates")
    visit.tab.evaluate("window.notLoadedAgain = true")
    early = visit.count(".trials tbody tr")
    assert 0 < early < 8
    visit.tab.wait_for("succeeded", "document.querySelector('.heading .badge').textContent")
    assert (visit.count(".trials tbody tr"), visit.tab.evaluate("window.notLoadedAgain")) == (8, True)
    assert visit.texts(".tiles .best dt") == ["Best accuracy"]
    assert visit.tab.wait_for("%", "document.querySelector('.importance').textContent")
    visit.show("/searches?state=ended", "tune")
    assert visit.texts("td.tried") == ["8 / 8"]


def test_trials_are_sorted_limited_and_compared(
    visit: Visit, searched: dict[str, Any], client: Client
) -> None:
    client.get(f"/jobs/{searched['id']}/wait", timeout="60")
    visit.show(f"/searches/{searched['id']}", "Parallel coordinates")
    values = [float(text.strip("★ ")) for text in visit.texts("td.objective")]
    assert values == sorted(values, reverse=True)
    visit.click("th button", "lr")
    visit.click("th button", "lr")
    rates = [float(text) for text in visit.texts("td.parameter.number")]
    assert rates == sorted(rates)

    grip = visit.box(".axis .grip")
    middle, bottom = grip["y"] + grip["height"] / 2, grip["y"] + grip["height"]
    x = grip["x"] + grip["width"] / 2
    visit.drag((x, middle), (x, bottom + 9))
    visit.tab.wait_for("of 8")
    kept = [float(text) for text in visit.texts("td.parameter.number")]
    assert kept == [rate for rate in rates if rate <= 0.5]
    visit.tab.press("Delete", 46)
    visit.tab.wait_for("8", "String(document.querySelectorAll('.trials tbody tr').length)")

    visit.click(".trials tbody tr:nth-child(1) input")
    visit.click(".trials tbody tr:nth-child(2) input")
    visit.tab.wait_for("Compare 2 trials")
    visit.tab.wait_for("accuracy by step")
    visit.tab.wait_for("1", "String(document.querySelectorAll('.compare canvas').length)")
    assert MARKUP in visit.texts(".compare th[scope=row]")


def test_the_cluster_shows_who_runs_where_and_what_waits(visit: Visit, client: Client) -> None:
    vision = client.other("vision")
    client.get("/jobs/tune/wait", timeout="60")
    holds = client.post("/jobs", vertex_job(f"holds {HOSTILE}", "sleep 600", gpus=2))
    client.get(f"/jobs/{holds['id']}/wait", **{"for": "started"})
    waits = vision.post("/jobs", vertex_job("waits", "sleep 600", gpus=1))
    shown = visit.show("/cluster", "waits")
    assert "needs" in shown
    assert (visit.count("a.gpu"), visit.texts("td.place")) == (2, ["1"])
    assert visit.texts("[aria-label='jobs that hold resources'] td.job") == [f"holds {HOSTILE}"]
    client.post(f"/jobs/{holds['id']}/stop")
    visit.tab.wait_for("No job waits")
    visit.tab.wait_for(
        "waits", "document.querySelector('[aria-label=\"jobs that hold resources\"]')?.textContent ?? ''"
    )
    assert visit.count("a.gpu") == 1
    client.post(f"/jobs/{waits['id']}/stop")


def add_files(visit: Visit, names: list[str], text: str) -> None:
    """Puts files into the view's file field, as the browser's dialog does."""
    visit.tab.evaluate(f"""{{
        const all = new DataTransfer();
        for (const name of {json.dumps(names)}) all.items.add(new File([{json.dumps(text)}], name));
        const field = document.querySelector("input.files");
        field.files = all.files;
        field.dispatchEvent(new Event("change"));
    }}""")


def test_objects_are_uploaded_downloaded_and_deleted(visit: Visit, client: Client, home: Path) -> None:
    visit.show("/storage", "Buckets")
    visit.click("button", "Create a bucket")
    visit.fill(name="page-data")
    visit.tab.wait_for("The bucket is empty")
    name = HOSTILE.replace("/", "") + " a&b#c?.txt"
    add_files(visit, [name, "model.bin"], "one")
    visit.tab.wait_for("2 of 2 objects uploaded")
    visit.tab.wait_for("2 entries")
    assert name in visit.texts("td.job")

    add_files(visit, ["model.bin"], "other")
    visit.tab.wait_for("exists already")
    visit.click(".uploads button", "Replace")
    visit.tab.wait_for(
        "5 B", "[...document.querySelectorAll('td.size')].map((one) => one.textContent).join()"
    )
    with client.open("GET", "/object", url="gs://page-data/model.bin") as answer:
        assert answer.read() == b"other"

    saved = home / "saved"
    visit.tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(saved))
    visit.click("button.object", "model.bin")
    deadline = 200
    while not (saved / "model.bin").exists() and (deadline := deadline - 1):
        visit.tab.evaluate("new Promise((resolve) => setTimeout(resolve, 50))")
    assert (saved / "model.bin").read_bytes() == b"other"

    with client.open("PUT", "/object", b"x", url="gs://page-data/runs/1/log.txt"):
        pass
    visit.show("/storage/page-data/runs/1/", "log.txt")
    visit.click(".path a", "page-data")
    visit.tab.wait_for("runs/")
    visit.click("thead input")
    visit.click("button.danger", "Delete")
    visit.click("dialog button.danger", "Delete")
    visit.tab.wait_for("The bucket is empty")
    visit.click("button", "Remove the bucket")
    visit.click("dialog button.danger", "Remove")
    visit.tab.wait_for("Create a bucket")
    assert "page-data" not in [one["name"] for one in client.get("/buckets")["buckets"]]


def test_files_are_dropped_into_a_folder(visit: Visit, client: Client) -> None:
    client.send("PUT", "/buckets/dropped")
    visit.show("/storage/dropped?prefix=in/", "Nothing here")
    visit.tab.evaluate("""{
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["hello"], "a.txt"));
        const view = document.querySelector(".storage");
        for (const kind of ["dragenter", "drop"])
            view.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
    }""")
    visit.tab.wait_for("1 entry")
    assert visit.texts("td.job") == ["a.txt"]
    assert client.get("/object/info", url="gs://dropped/in/a.txt")["size"] == 5


def test_a_key_is_made_its_secret_shown_once_and_revoked(visit: Visit, client: Client) -> None:
    visit.show("/keys", "Create a key")
    assert "3" in visit.texts("td.weight")
    visit.click("button", "Create a key")
    visit.fill(project="not a project")
    visit.tab.wait_for("cannot be a project")
    visit.fill(project="speech", label=HOSTILE)
    visit.tab.wait_for("shown only now")
    [key_id], [secret] = visit.texts("code.id"), visit.texts("code.secret")
    made = Client(client.service, Key(key_id, secret, "speech"))
    assert made.get("/whoami")["project"] == "speech"
    visit.click("dialog button", "Done")
    visit.tab.wait_for(HOSTILE)
    assert secret not in visit.tab.evaluate(
        "document.documentElement.outerHTML + JSON.stringify(localStorage)"
    )
    visit.tab.evaluate(f"document.querySelector('[aria-label=\"revoke {key_id}\"]').click()")
    visit.click("dialog button.danger", "Revoke")
    visit.tab.wait_for(f"Revoked {key_id}")
    assert made.send("GET", "/whoami").status == 401


@pytest.mark.parametrize("address", ["/searches", "/searches/tune", "/cluster", "/storage", "/keys"])
def test_on_a_phone_nothing_is_wider_than_the_screen(
    visit: Visit, searched: dict[str, Any], address: str
) -> None:
    visit.tab.resize(390, 844)
    visit.show(
        address,
        {"/searches/tune": "Importance", "/cluster": "This machine", "/storage": "Buckets"}.get(
            address, "Created"
        ),
    )
    assert not visit.is_too_wide()


def test_an_address_that_is_no_view(visit: Visit) -> None:
    visit.show("/nonsense", "This page does not exist")
    visit.click("a", "Show all jobs")
    visit.tab.wait_for("/jobs", "location.pathname")


def test_another_key_sees_its_project_only(visit: Visit, client: Client, searched: dict[str, Any]) -> None:
    client.other("speech").send("PUT", "/buckets/theirs")
    other = client.other("vision")
    visit.sign_out()
    visit.sign_in(other.key)
    assert "Keys" not in visit.texts("nav a")
    visit.show("/keys", "Only the root key")
    visit.show("/searches", "No searches yet")
    assert "theirs" not in visit.show("/storage", "Buckets")
    visit.show("/storage/theirs", "There is no bucket")
    visit.show(f"/searches/{searched['id']}", "no job")
    visit.sign_out()
    visit.sign_in(KEY)
