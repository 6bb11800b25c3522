"""The texts of events and stages in English and Chinese, from messages.toml."""

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec

Language = Literal["en", "zh"]
Level = Literal["Info", "Warning", "Error"]
Source = Literal["Job", "Task", "K8S"]


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    en: str
    zh: str

    def text(self, language: Language, **values: str) -> str:
        return (self.zh if language == "zh" else self.en).format(**values)


class Kind(Text, frozen=True, forbid_unknown_fields=True):
    """A kind of event."""

    level: Level
    source: Source
    notification: str = ""
    """The category for which users can request notifications."""


class Stage(Text, frozen=True, forbid_unknown_fields=True):
    en_done: str = ""
    zh_done: str = ""

    @property
    def done(self) -> Text:
        """The text for a stage that is over."""
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
    text = resources.files("turnout.dialects.modelarts.observe").joinpath("messages.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Messages)


def language(header: str) -> Language:
    """The language of an X-Language header such as `zh-cn` or `en-us`. English unless it is Chinese."""
    return "zh" if header.strip().lower().startswith("zh") else "en"


def hours(count: int, language_code: Language) -> str:
    units = messages().units
    return units["hour" if count == 1 else "hours"].text(language_code, count=str(count))
