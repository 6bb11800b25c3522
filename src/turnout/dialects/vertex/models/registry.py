"""A model with its versions, as it is stored, and the changes of it. Pure."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.errors import Invalid, NotFound, OverQuota, WrongState

DEFAULT = "default"
"""The alias of the version that a name without a version means."""
MAX_VERSIONS = 1000

_ALIAS = re.compile(r"[a-zA-Z]([a-zA-Z0-9-]{0,126}[a-zA-Z0-9])?")


class Version(msgspec.Struct, rename="camel"):
    id: str
    created: int
    updated: int
    aliases: list[str] = []
    description: str = ""
    labels: dict[str, str] = {}
    pipeline: str = ""
    """The training pipeline that made it."""
    copied_from: str = ""
    fields: dict[str, Any] = {}
    """The other fields of its Model, as JSON."""


class StoredModel(msgspec.Struct, rename="camel"):
    display_name: str
    created: int
    updated: int
    description: str = ""
    labels: dict[str, str] = {}
    last: int = 0
    """The number of the last version. Numbers are not used again."""
    versions: list[Version] = []

    def find(self, reference: str) -> Version | None:
        """By number or alias; empty: the default version."""
        wanted = reference or DEFAULT
        return next((one for one in self.versions if wanted == one.id or wanted in one.aliases), None)

    def made_by(self, pipeline: str) -> Version | None:
        return next((one for one in self.versions if one.pipeline == pipeline), None)


def decode(document: bytes) -> StoredModel:
    return msgspec.json.decode(document, type=StoredModel)


def add(model: StoredModel, version: Version) -> Version:
    """Gives the version the next number. The first version is the default; aliases move from older versions."""
    if len(model.versions) >= MAX_VERSIONS:
        raise OverQuota(f"The model has {MAX_VERSIONS} versions already; delete some first.")
    model.last += 1
    version.id = str(model.last)
    if not model.versions and DEFAULT not in version.aliases:
        version.aliases = [DEFAULT, *version.aliases]
    _take(model, version.aliases)
    model.versions.append(version)
    model.updated = version.updated
    return version


def merge_aliases(model: StoredModel, version: Version, aliases: Sequence[str], now: int) -> None:
    """Adds aliases, and removes those that begin with `-`."""
    removed = [alias[1:] for alias in aliases if alias.startswith("-")]
    added = [alias for alias in aliases if not alias.startswith("-")]
    check_aliases([*removed, *added], "versionAliases")
    if DEFAULT in removed and DEFAULT in version.aliases:
        raise WrongState(
            "versionAliases: the alias default cannot be removed; give it to another version instead.",
            field="versionAliases",
        )
    _take(model, added)
    version.aliases = [*(alias for alias in version.aliases if alias not in removed), *added]
    version.updated = model.updated = now


def delete_version(model: StoredModel, version: Version, name: str) -> None:
    if len(model.versions) == 1:
        raise WrongState(f"The Model {name} has only this version. Delete the model instead.")
    if DEFAULT in version.aliases:
        raise WrongState(
            f"The version {version.id} of the Model {name} is the default. Give the alias default to another version"
            " first."
        )
    model.versions.remove(version)


def check_aliases(aliases: Sequence[str], field: str) -> None:
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            raise Invalid(
                f"{field}: {quoted(alias)} must begin with a letter, have letters, digits and '-', and at most 128"
                " characters.",
                field=field,
            )
    if len(set(aliases)) != len(aliases):
        raise Invalid(f"{field}: an alias occurs twice.", field=field)


def version_of(model: StoredModel, reference: str, name: str) -> Version:
    version = model.find(reference)
    if version is None:
        raise NotFound(f"The Model {name} has no version {quoted(reference)}.")
    return version


def _take(model: StoredModel, aliases: Sequence[str]) -> None:
    for version in model.versions:
        version.aliases = [alias for alias in version.aliases if alias not in aliases]
