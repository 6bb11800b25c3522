"""The controller: turns commands and engine reports into rows of the store, and then into instructions to engines."""

from turnout.control.controller import Controller
from turnout.control.explain import Explanation

__all__ = ["Controller", "Explanation"]
