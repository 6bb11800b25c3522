"""The page in a real browser: sign-in, the jobs of all APIs, one job, its log, and what hostile jobs can do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import KEY, Service
from tests.web.browser import Tab, browser
from tests.web.custom_jobs import create, vertex

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
PRINTS_HOSTILE = rf"""
print({HOSTILE!r}); print("\x1b]0;owned\x07\x1b[31mred\x1b[0m", "java\u202escript:")
"""
STEPS = "import time\nfor step in range(40): print(f'step {step} loss={1/(step+1):.3f}', flush=True)\ntime.sleep(1000)"
FAILS = "print('loading'); print('epoch 1'); raise ValueError('the learning rate is negative')"
LONG = "for n in range(30000): print('RuntimeError: first' if n == 12345 else f'line {n} of many')"

HOLDS_THE_STREAM = """
const send = window.fetch;
const released = new Promise((release) => { window.releaseStream = release; });
window.fetch = async (...all) => {
  if (String(all[0]).includes('/changes')) await released;
  return send(...all);
};
"""


@pytest.fixture(scope="module")
def tab(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser that has signed in."""
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.watch()
        opened.resize(1200, 800)
        opened.go(service.endpoint + "/jobs")
        opened.wait_for("Sign in with a key")
        fill(opened, "key", KEY.id)
        fill(opened, "secret", "wrong")
        click(opened, "button.primary")
        opened.wait_for("no such key, or a wrong secret")
        opened.problems.clear()  # the browser counts the refusal as one
        fill(opened, "secret", KEY.secret)
        click(opened, "button.primary")
        opened.wait_for("No jobs yet")
        yield opened


@pytest.fixture(autouse=True)
def no_problems(tab: Tab) -> Iterator[None]:
    tab.problems.clear()
    yield
    tab.evaluate("1")
    assert not tab.problems
    assert tab.evaluate("document.title") != "owned"


def fill(tab: Tab, name: str, text: str) -> None:
    tab.evaluate(f"document.querySelector('[name={name}]').select()")
    tab.type(text)


def click(tab: Tab, selector: str, text: str = "") -> None:
    all_of_them = f"[...document.querySelectorAll({json.dumps(selector)})]"
    found = f"{all_of_them}.find(one => one.textContent.includes({json.dumps(text)}))"
    tab.wait_for("found", f"{found} ? 'found' : ''")
    tab.evaluate(f"{found}.click()")


def job_id(job: Any) -> str:
    return job["name"].rpartition("/")[2]


def test_jobs_appear_and_change_by_themselves(service: Service, tab: Tab) -> None:
    service.create("live", "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 3")
    tab.wait_for("live")
    tab.wait_for("running")
    service.delete("live")
    tab.wait_for("No jobs yet")


def test_filters_are_the_address(service: Service, tab: Tab) -> None:
    for name in ("alpha", "beta"):
        service.create(name, "true")
        service.wait(name, "ended")
    tab.wait_for("beta")
    tab.press("/", 191)
    tab.type("alph")
    tab.wait_for("name=alph", "location.search")
    tab.wait_for("1 job")
    assert "beta" not in tab.text
    tab.go(service.endpoint + "/jobs?state=failed")
    tab.wait_for("No job matches")
    tab.go(service.endpoint + "/jobs?name=*a&order=name")
    assert "alpha" in tab.wait_for("2 jobs")


def test_keys_select_and_delete_many(service: Service, tab: Tab) -> None:
    tab.go(service.endpoint + "/jobs")
    tab.wait_for("alpha")
    for key in ("j", "x", "j", "x"):
        tab.press(key, ord(key.upper()))
    tab.wait_for("2 jobs selected")
    click(tab, "button.danger", "Delete")
    click(tab, "dialog button.danger", "Delete")
    tab.wait_for("No jobs yet")


def test_a_job_that_failed_says_why_first(service: Service, tab: Tab) -> None:
    job = create(service, FAILS)
    tab.go(f"{service.endpoint}/jobs/{job_id(job)}")
    text = tab.wait_for("It failed")
    assert "the learning rate is negative" in tab.evaluate("document.querySelector('.verdict').innerText")
    assert "workerpool0-0" in text
    assert "exit code 1" in text
    click(tab, ".verdict a", "First error")
    tab.wait_for("Traceback", "document.querySelector('li.marked')?.innerText ?? ''")


def test_a_running_job_shows_its_numbers_and_its_log_live(service: Service, tab: Tab) -> None:
    job = create(service, STEPS)
    tab.go(f"{service.endpoint}/jobs/{job_id(job)}")
    tab.wait_for("It is running")
    tab.wait_for("canvas", "document.querySelector('.chart canvas') ? 'canvas' : ''")
    click(tab, ".switch button", "TI-A")
    assert "Who did what" in tab.wait_for('"RuntimeVersion"')
    assert "TI-A has no field for environment variables" not in tab.text
    assert "imageUri" not in tab.evaluate("document.querySelector('.document').innerText")
    click(tab, "a.button", "Log")
    tab.wait_for("step 39")
    tab.go(f"{service.endpoint}/jobs/{job_id(job)}")
    click(tab, ".actions button", "Stop")
    click(tab, "dialog button.danger", "Stop")
    tab.wait_for("stopped")


@pytest.mark.parametrize("path", ["/jobs?name=page", "/jobs/{job}", "/jobs/{job}/logs"])
def test_what_changes_before_the_stream_begins_is_shown(path: str, service: Service, tab: Tab) -> None:
    job = create(service, "import time; time.sleep(1000)")
    script = tab.call("Page.addScriptToEvaluateOnNewDocument", source=HOLDS_THE_STREAM)["identifier"]
    tab.go(service.endpoint + path.format(job=job_id(job)))
    tab.wait_for("running")
    vertex(service, "POST", f"{job['name'].removeprefix('/')}:cancel")
    service.native(f"/jobs/{job_id(job)}/wait?for=ended&timeout=30")
    assert "running" in tab.text
    tab.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    tab.evaluate("window.releaseStream()")
    shown = tab.wait_for("stopped", "document.querySelector('main').innerText")
    assert "running" not in shown.splitlines()


def test_a_hostile_job_is_only_text(service: Service, tab: Tab) -> None:
    service.create("hostile", "python3", "-c", PRINTS_HOSTILE)
    service.wait("hostile", "ended")
    tab.go(f"{service.endpoint}/jobs/hostile/logs")
    assert HOSTILE in tab.wait_for("red")
    tab.wait_for("red", "document.querySelector('.log-lines .f1')?.innerText ?? ''")
    assert "\u202e" not in tab.text
    tab.go(f"{service.endpoint}/jobs?name={HOSTILE.replace('=', '%3D')}")
    tab.wait_for("No job matches")
    # The policy, not only the code, stops scripts.
    refused = "(() => { try { document.body.innerHTML = '<b>'; return 'set' } catch { return 'refused' } })()"
    assert tab.evaluate(refused) == "refused"
    tab.evaluate("1")
    tab.problems.clear()


def test_a_long_log_is_searched_and_scrolled(service: Service, tab: Tab) -> None:
    service.create("long", "python3", "-c", LONG)
    service.wait("long", "ended")
    tab.go(f"{service.endpoint}/jobs/long/logs")
    tab.wait_for("line 29999")
    assert int(tab.evaluate("document.querySelectorAll('.log-lines li').length")) < 3000
    click(tab, ".actions button", "First error")
    tab.wait_for("RuntimeError: first", "document.querySelector('li.marked')?.innerText ?? ''")
    link = tab.evaluate("location.href")
    bar = "const bar = document.querySelector('.log-bar input'); bar.value = 0; bar.dispatchEvent(new Event('input'))"
    tab.evaluate(bar)
    tab.wait_for("line 0 of many")
    tab.go("about:blank")
    tab.go(link)
    tab.wait_for("RuntimeError: first", "document.querySelector('li.marked')?.innerText ?? ''")
    # A scroll while the search runs asks for more lines: they must not be loaded twice.
    scroll = "document.querySelector('.log-lines')?.dispatchEvent(new Event('scroll'))"
    tab.evaluate(f"window.scrolling = setInterval(() => {scroll}, 5)")
    tab.press("/", 191)
    tab.type("line 2999")
    tab.wait_for("11 lines found")
    tab.wait_for("line 29990 of many")
    tab.evaluate("clearInterval(window.scrolling)")


def test_a_log_without_errors_is_shown_although_one_looks_for_the_first(service: Service, tab: Tab) -> None:
    service.create("well", "echo", "all is well")
    service.wait("well", "ended")
    tab.go(f"{service.endpoint}/jobs/well/logs?jump=error")
    tab.wait_for("No line looks like an error")
    tab.wait_for("all is well")


def test_a_phone_shows_everything(service: Service, tab: Tab, tmp_path: Path) -> None:
    tab.resize(390, 800)
    for path in ("/jobs", "/jobs/long", "/jobs/long/logs"):
        tab.go(service.endpoint + path)
        tab.wait_for("long")
        width = tab.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, path
        tab.picture(tmp_path / "phone.png")
    tab.resize(1200, 800)


def test_sign_out_ends_the_session(service: Service, tab: Tab) -> None:
    tab.go(service.endpoint + "/jobs")
    tab.wait_for("long")
    click(tab, ".menu button", "Sign out")
    tab.wait_for("Sign in with a key")
    tab.go(service.endpoint + "/jobs")
    tab.wait_for("Sign in with a key")
    tab.problems.clear()  # the refused request
