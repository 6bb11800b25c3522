"""A real browser, driven through its own debugging protocol."""

import base64
import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60
_NETWORK = "ERR_NETWORK_CHANGED"
"""Other tests make network interfaces; Chromium then drops its connections."""


class Tab:
    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self.problems: list[str] = []
        """What the browser complained about since `watch`: errors of scripts, and what the page's policy refused."""

    def watch(self) -> None:
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(order | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(details["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if details["type"] in ("error", "assert"):
                self.problems.append(json.dumps(details["args"]))
            case "Log.entryAdded" if details["entry"]["level"] == "error":
                if _NETWORK in details["entry"]["text"]:
                    return
                self.problems.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")

    def go(self, address: str) -> None:
        while _NETWORK in self.call("Page.navigate", url=address).get("errorText", ""):
            pass

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    @property
    def text(self) -> str:
        return self.evaluate("document.body ? document.body.innerText : ''") or ""

    def wait_for(self, text: str, expression: str = "document.body ? document.body.innerText : ''") -> str:
        """The whole text of the page, as soon as it contains this. The browser polls, not the test."""
        deadline = time.monotonic() + PATIENCE
        found = ""
        while time.monotonic() < deadline:
            found = self.evaluate(expression) or ""
            if text in found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{text!r} is not shown: {found!r}")

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter", 13)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser(home: Path) -> Iterator[Tab]:
    profile = home / "profile"
    options = ["--remote-debugging-port=0", "--window-size=1000,640", f"--user-data-dir={profile}"]
    command = [*CHROMIUM, *options, "about:blank"]
    env = os.environ | {"HOME": str(home)}
    with (home / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        with connect(_address(profile, process), max_size=None, proxy=None) as socket:
            whole = Tab(socket, "")
            target = whole.call("Target.createTarget", url="about:blank")["targetId"]
            session = whole.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            yield Tab(socket, session)
    finally:
        process.kill()
        process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            port, path = file.read_text().split()
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.05)
    raise AssertionError("chromium does not start")
