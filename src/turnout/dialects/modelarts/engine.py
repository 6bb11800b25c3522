"""Which engine a document names, and what that is on this machine."""

import difflib
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import catalogue, faults, wire
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.dialects.modelarts.script import Family

IMAGE_USER = 1000
"""Whom programs of custom images run as unless something else is said."""
LOWEST_PUBLIC_USER = 1000
HIGHEST_USER = 65535


class Chosen(NamedTuple):
    kept: dict[str, Any]
    family: Family
    runtime: str
    wants: str
    user: int | None
    image: str = ""
    preset: bool = True
    """A boot file can be started by its Python."""
    v1: bool = False
    ascend: bool = False
    search: bool = False


def choose(engine: wire.Engine | None, settings: config.Settings, field: str) -> Chosen:
    """By id, by name and version, or an image; with both a name and an image, the image stands in for the engine's."""
    asked = engine or wire.Engine()
    if asked.image_url:
        return _of_image(asked, settings, field)
    if asked.engine_id:
        found = catalogue.engines().get(asked.engine_id)
        if found is None:
            raise wrong(faults.NO_ENGINE, f"{field}.engine_id", _unknown(asked.engine_id))
        _check_same(asked, found, field)
    elif asked.engine_name and asked.engine_version:
        found = catalogue.by_name(asked.engine_name, asked.engine_version)
        if found is None:
            raise wrong(faults.NO_ENGINE, f"{field}.engine_version", _unknown(asked.engine_version))
    else:
        raise wrong(
            faults.NO_ENGINE_ID,
            f"{field}.engine_id",
            " is missing: say engine_id, engine_name with engine_version, or image_url.",
        )
    return Chosen(
        kept={**_echo(asked), **found.brief()},
        family=found.family,
        runtime=found.id,
        wants=found.wants,
        user=_user(asked, found.run_user, field),
        v1=found.v1,
        ascend=found.ascend,
        search=found.search,
    )


def check_user(user: int | None, public: bool, field: str) -> None:
    if public and user is not None and user < LOWEST_PUBLIC_USER:
        raise wrong(
            faults.DENIED_USER,
            f"{field}.run_user",
            f": {user} is below {LOWEST_PUBLIC_USER}, which the public pool does not allow; a dedicated pool does.",
        )


def _of_image(asked: wire.Engine, settings: config.Settings, field: str) -> Chosen:
    image = asked.image_url or ""
    if len(image) > 512 or not image.isprintable() or " " in image:
        raise wrong(faults.NO_COMMAND, f"{field}.image_url", f": {shown(image)} is no image's name.")
    name = (asked.engine_name or "").lower()
    family = next(
        (family for word, family in catalogue.FAMILIES.items() if name.startswith(word)), Family.PLAIN
    )
    return Chosen(
        kept=_echo(asked),
        family=family,
        runtime=settings.images.get(image, image),
        wants=f"the image {image}" if image in settings.images else "",
        user=_user(asked, str(IMAGE_USER), field),
        image=image,
        preset=bool(name),
    )


def _check_same(asked: wire.Engine, found: catalogue.Engine, field: str) -> None:
    for key, said, known in (
        ("engine_name", asked.engine_name, found.name),
        ("engine_version", asked.engine_version, found.version),
    ):
        if said and said.lower() != known.lower():
            raise wrong(
                faults.NO_ENGINE,
                f"{field}.{key}",
                f": {shown(said)} is not that of engine_id {found.id}, which is {known}; leave it out.",
            )


def _echo(asked: wire.Engine) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.to_builtins(asked)
    if "run_user" in kept:
        kept["run_user"] = str(kept["run_user"])
    return {key: value for key, value in kept.items() if value != ""}


def _user(asked: wire.Engine, usual: str, field: str) -> int | None:
    said = "" if asked.run_user is None else str(asked.run_user)
    spelt = said or usual
    if not spelt:
        return None
    if not (spelt.isascii() and spelt.isdecimal() and len(spelt) <= 5 and int(spelt) <= HIGHEST_USER):
        raise wrong(
            faults.BAD_PARAM,
            f"{field}.run_user",
            f": {shown(said)} must be a user id from 0 to {HIGHEST_USER}.",
        )
    return int(spelt)


def _unknown(name: str) -> str:
    known = [*catalogue.engines(), *(engine.version for engine in catalogue.engines().values())]
    close = difflib.get_close_matches(name[:100], known, 1, cutoff=0.4)
    hint = f"did you mean {close[0]}?" if close else "training-job-engines lists all."
    return f": there is no engine {shown(name)}; {hint}"
