"""The loop that makes it true: commands and reports become rows, and then deeds."""

from turnout.control.explain import Explanation
from turnout.control.loop import Control

__all__ = ["Control", "Explanation"]
