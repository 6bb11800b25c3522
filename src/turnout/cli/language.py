"""The language of help and results: English, or Chinese for tictl where the locale says so."""

import sys
import tomllib
from importlib import resources

from turnout import config

_chinese: dict[str, str] = {}


def choose() -> None:
    """Call it once, before anything is shown. Without it everything is in English."""
    if config.locale().startswith("zh") and _prints("中文"):
        text = resources.files("turnout.cli").joinpath("chinese.toml").read_text(encoding="utf-8")
        _chinese.update(tomllib.loads(text))


def say(text: str, **values: object) -> str:
    """The text in the chosen language, with these values in place of `{name}`."""
    translated = _chinese.get(text, text)
    return translated.format(**values) if values else translated


def _prints(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
