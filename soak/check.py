"""Checks that each job and each trial ended as it must."""

import contextlib
import re
import urllib.error
from collections import Counter
from pathlib import Path
from typing import Any

from soak.load import STAGED, Job, place, went_back
from soak.searches import Search, check_search, said
from tests.running import KEY, Service
from turnout.cli.client import Client, Credentials

PATIENCE = 120
_ATTEMPT = re.compile(r"\w+ (\d+)\b")
OURS = "[ModelArts Service Log]"
PLATFORM = ("node lost", "staging failed", "refused by the engine", "program not found")
"""Reasons for which a job may end on a full disk without its program's exit code."""


def check(service: Service, job: Job, full: list[tuple[float, float]], far: Any) -> str:
    """What is wrong with the job, or "". `far`: the remote store, as obstore opens it."""
    found = _ended(service, job)
    runs = _written(service, job, "runs", far).count("run\n")
    if found is None:
        if job.id:
            return "it was accepted but does not exist"
        return f"its create failed, but it ran {runs} times" if runs else ""
    if seen := went_back(job):
        return f"its states went back: {seen}"
    codes = [one["exit_code"] for one in found["replicas"]]
    result = _written(service, job, "result", far)
    lines = _lines(service, found["id"])
    if blurred(job, full):
        return _check_loosely(found, job.code, codes, runs, job.failures + 1, result, f"{job.name}\n") or (
            _check_order(lines, job.said)
        )
    wanted = "succeeded" if job.code == 0 else "failed"
    if (found["state"], codes) != (wanted, [job.code]):
        return f"it is {found['state']} with {codes}, not {wanted} with [{job.code}]: {found['message']}"
    if runs != job.failures + 1:
        return f"it ran {runs} times, not {job.failures + 1}"
    if result != f"{job.name}\n":
        return f"its result is {result!r}"
    return _check_lines(lines, job.said)


def check_trials(service: Service, search: Search, full: list[tuple[float, float]]) -> list[str]:
    """What is wrong with a search and with each of its trials."""
    view = service.wait(search.id, timeout=180)
    trials = service.explain(search.id)["trials"]
    exact = not blurred(search, full)
    wrong = [why] if (why := check_search(view["state"], view["message"], trials, exact)) else []
    found = [(trial, _check_trial(service, search, trial, exact)) for trial in trials]
    return wrong + [f"trial {trial['number']} ({trial['job']}): {why}" for trial, why in found if why]


def blurred(job: Job | Search, full: list[tuple[float, float]]) -> bool:
    """Whether the disk may have been full while it ran, so that its own writes may have failed."""
    return any(since < job.ended and job.sent < until for since, until in full)


def _check_trial(service: Service, search: Search, trial: Any, exact: bool) -> str:
    found = service.wait(trial["job"], timeout=PATIENCE)
    codes = [one["exit_code"] for one in found["replicas"]]
    where = service.data / "buckets" / search.bucket / str(trial["number"])
    runs = _text(where / "runs").count("run\n")
    result = _text(where / "result")
    x = str(trial["parameters"]["x"])
    lines = _lines(service, trial["job"])
    if not exact:
        return _check_loosely(found, 0, codes, runs, 1, result, f"{x}\n") or _check_order(lines, [said(x)])
    if (trial["state"], found["state"], codes) != ("succeeded", "succeeded", [0]):
        return f"it is {trial['state']}, its job {found['state']} with {codes}: {trial['message']}"
    if trial["value"] != float(x):
        return f"its value is {trial['value']}, not {x}"
    if runs != 1:
        return f"it ran {runs} times"
    if result != f"{x}\n":
        return f"its result is {result!r}"
    return _check_lines(lines, [said(x)])


def _check_loosely(
    found: Any, code: int, codes: list[int | None], runs: int, most_runs: int, result: str, whole: str
) -> str:
    """Checks what must hold on a full disk too: the exit code is the program's, and nothing ran twice."""
    if runs > most_runs:
        return f"it ran {runs} times"
    if result not in ("", whole):
        return f"its result is {result!r}, neither complete nor absent"
    if found["state"] == "succeeded" and (code, codes) != (0, [0]):
        return f"it has succeeded with {codes}, not {code}"
    if found["state"] == "failed" and found["reason"] not in PLATFORM and codes != [code]:
        return f"it has failed with {codes}, not {code}: {found['reason']}: {found['message']}"
    if found["state"] not in ("succeeded", "failed"):
        return f"it is {found['state']}: {found['message']}"
    return ""


def _check_lines(lines: list[list[str]], wanted: list[list[str]]) -> str:
    if lines == wanted:
        return ""
    counts = [len(one) for one in lines], [len(one) for one in wanted]
    return f"its log has {counts[0]} lines, not {counts[1]}: {[one[:3] + one[-3:] for one in lines]}"


def _check_order(lines: list[list[str]], wanted: list[list[str]]) -> str:
    """No line appears twice or out of order. Lines that were only partly written are ignored."""
    if len(lines) > len(wanted):
        return f"it has logs of {len(lines)} attempts, not {len(wanted)}"
    for printed, whole in zip(lines, wanted, strict=False):
        known = [line for line in printed if line in whole]
        if twice := [line for line, count in Counter(known).items() if count > 1]:
            return f"its log has {twice[:3]} twice"
        if [whole.index(line) for line in known] != sorted(whole.index(line) for line in known):
            return f"its log is out of order: {known}"
    return ""


def _ended(service: Service, job: Job) -> Any:
    reference = job.id or job.name
    try:
        return service.wait(reference, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def _written(service: Service, job: Job, name: str, far: Any) -> str:
    """The content of this file in the job's output; empty if there is none."""
    if job.api == STAGED:
        with contextlib.suppress(FileNotFoundError):
            return bytes(far.get(f"{job.name}/{name}").bytes()).decode()
        return ""
    where = job.bucket if job.api in ("tia", "vertex") else place(job)
    return _text(service.data / "buckets" / where / name)


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    return ""


def _lines(service: Service, job_id: str) -> list[list[str]]:
    """The lines of each attempt. They contain its number, because the clock may have been set back between attempts."""
    client = Client(service.endpoint, Credentials(KEY.id, KEY.secret))
    found: dict[int, list[str]] = {}
    for lines in client.follow(job_id, False):
        for line in lines:
            if not line["text"].startswith(OURS):
                attempt = _ATTEMPT.match(line["text"])
                found.setdefault(int(attempt[1]) if attempt else 1, []).append(line["text"])
    return [found[attempt] for attempt in sorted(found)]
