"""Drives the page in a real browser: signs in, clicks what a person would, and sees what was refused."""

import json
from typing import Any

from tests.running import Service
from tests.web.browser import Tab
from turnout.access import Key


class Visit:
    """One signed-in visit to the page."""

    def __init__(self, tab: Tab, service: Service) -> None:
        self.tab = tab
        self.service = service

    def sign_in(self, key: Key) -> None:
        self.tab.go(self.service.endpoint + "/jobs")
        self.tab.wait_for("Secret")
        fields = (
            f"f.elements.key.value = {json.dumps(key.id)}; f.elements.secret.value = {json.dumps(key.secret)}"
        )
        self.tab.evaluate(
            f"(() => {{ const f = document.querySelector('form'); {fields}; f.requestSubmit(); }})()"
        )
        self.tab.wait_for("Live", "document.querySelector('.connection')?.textContent ?? ''")
        self.tab.problems.clear()  # before the sign-in, a 401 is what the browser should get

    def sign_out(self) -> None:
        self.tab.evaluate("document.querySelector('.menu button').click()")
        self.tab.wait_for("Secret")

    def show(self, address: str, text: str) -> str:
        """Opens a view and returns its text as soon as it contains this."""
        self.tab.evaluate("document.body.textContent = ''")
        self.tab.go(self.service.endpoint + address)
        return self.tab.wait_for(text)

    def click(self, selector: str, text: str = "") -> None:
        """Clicks the first element that matches and has this text, as soon as there is one."""
        fits = f"(one) => one.textContent.includes({json.dumps(text)})"
        found = f"[...document.querySelectorAll({json.dumps(selector)})].find({fits})"
        self.tab.wait_for("yes", f"{found} ? 'yes' : document.body.innerText")
        self.tab.evaluate(f"{found}.click()")

    def fill(self, **fields: str) -> None:
        """Fills the form of the open dialog and submits it."""
        for name, value in fields.items():
            self.tab.wait_for("yes", f"document.querySelector('dialog [name={name}]') ? 'yes' : ''")
            self.tab.evaluate(f"document.querySelector('dialog [name={name}]').value = {json.dumps(value)}")
        self.tab.evaluate("document.querySelector('dialog form').requestSubmit()")

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        for kind, (x, y) in (("mousePressed", begin), ("mouseMoved", end), ("mouseReleased", end)):
            self.tab.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
            )

    def box(self, selector: str) -> dict[str, float]:
        """Scrolls the element into view and returns its place in the window."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.tab.evaluate(f"{found}.scrollIntoView({{block: 'center'}})")
        return self.tab.evaluate(f"{found}.getBoundingClientRect().toJSON()")

    def texts(self, selector: str) -> list[str]:
        return self.tab.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent.trim())"
        )

    def count(self, selector: str) -> int:
        return self.tab.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def is_too_wide(self) -> Any:
        """Whether the window scrolls sideways."""
        return self.tab.evaluate("document.documentElement.scrollWidth > innerWidth")
