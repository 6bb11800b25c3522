"""What people read, in English and Chinese, from the data file beside this one."""

import time
import tomllib
from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

Language = Literal["en", "zh"]
Level = Literal["Info", "Warning", "Error"]
Source = Literal["Job", "Task", "K8S"]

_SECOND = 1_000_000_000
_CHINA = 8 * 3600


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    en: str
    zh: str

    def say(self, language: Language, **values: str) -> str:
        return (self.zh if language == "zh" else self.en).format(**values)


class Kind(Text, frozen=True, forbid_unknown_fields=True):
    """A kind of event."""

    level: Level
    source: Source
    notification: str = ""
    """The category that a user may ask to be notified of."""


class Stage(Text, frozen=True, forbid_unknown_fields=True):
    en_done: str = ""
    zh_done: str = ""

    @property
    def done(self) -> Text:
        """What is said once the stage is over."""
        return Text(self.en_done or self.en, self.zh_done or self.zh)


class Category(Text, frozen=True, forbid_unknown_fields=True):
    en_description: str
    zh_description: str

    @property
    def description(self) -> Text:
        return Text(self.en_description, self.zh_description)


class Messages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    events: dict[str, Kind]
    stages: dict[str, Stage]
    units: dict[str, Text]
    categories: dict[str, Category]


@lru_cache(maxsize=1)
def messages() -> Messages:
    text = resources.files("turnout.dialects.modelarts").joinpath("messages.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Messages)


def language(header: str) -> Language:
    """Of an X-Language header, `zh-cn` or `en-us`; English unless it asks for Chinese."""
    return "zh" if header.strip().lower().startswith("zh") else "en"


def hours(count: int, spoken: Language) -> str:
    units = messages().units
    return units["hour" if count == 1 else "hours"].say(spoken, count=str(count))


def iso(at: int) -> str:
    """`2022-11-26T16:03:41+08:00`"""
    return time.strftime("%Y-%m-%dT%H:%M:%S+08:00", time.gmtime(at // _SECOND + _CHINA))
