"""Finds the engine that a document names, and the runtime for it on this machine."""

import difflib
from typing import Any, NamedTuple

import msgspec

from turnout.dialects.modelarts import errors, wire
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.program.script import EngineFamily

IMAGE_USER = 1000
"""The default user id for programs of custom images."""
LOWEST_PUBLIC_USER = 1000
HIGHEST_USER = 65535


class ResolvedEngine(NamedTuple):
    stored: dict[str, Any]
    family: EngineFamily
    runtime: str
    wants: str
    user: int | None
    image: str = ""
    preset: bool = True
    """Its Python can run a boot file."""
    v1: bool = False
    ascend: bool = False


def resolve(engine: wire.Engine | None, field: str) -> ResolvedEngine:
    """Finds the engine by id, by name and version, or by image. With a name and an image, the image is used."""
    requested = engine or wire.Engine()
    found = _by_id(requested, field) if requested.engine_id else None
    if requested.image_url:
        return _of_image(requested, found, field)
    found = found or _by_name(requested, field)
    return ResolvedEngine(
        stored={**found.brief(), **_echo(requested)},
        family=found.family,
        runtime=found.id,
        wants=found.wants,
        user=_user(requested, found.run_user, field),
        v1=found.v1,
        ascend=found.ascend,
    )


def check_user(user: int | None, public: bool, field: str) -> None:
    if public and user is not None and user < LOWEST_PUBLIC_USER:
        raise invalid(
            errors.USER_NOT_ALLOWED,
            f"{field}.run_user",
            f": {user} must be at least {LOWEST_PUBLIC_USER} in the public pool; a dedicated pool allows it.",
        )


def _by_id(requested: wire.Engine, field: str) -> tables.CatalogueEngine:
    engine_id = requested.engine_id or ""
    found = tables.engines().get(engine_id)
    if found is None:
        raise invalid(errors.NO_SUCH_ENGINE, f"{field}.engine_id", _unknown(engine_id))
    _check_same(requested, found, field)
    return found


def _by_name(requested: wire.Engine, field: str) -> tables.CatalogueEngine:
    name, version = requested.engine_name, requested.engine_version
    if not name or not version:
        detail = " is missing: set engine_id, engine_name with engine_version, or image_url."
        raise invalid(errors.NO_ENGINE, f"{field}.engine_id", detail)
    found = tables.by_name(name, version)
    if found is None:
        raise invalid(errors.NO_SUCH_ENGINE, f"{field}.engine_version", _unknown(version))
    return found


def _of_image(requested: wire.Engine, found: tables.CatalogueEngine | None, field: str) -> ResolvedEngine:
    image = requested.image_url or ""
    if len(image) > 512 or not image.isprintable() or " " in image:
        raise invalid(errors.NO_COMMAND, f"{field}.image_url", f": {quoted(image)} is not an image name.")
    name = (found.name if found else requested.engine_name or "").lower()
    family = next(
        (family for word, family in tables.FAMILIES.items() if name.startswith(word)), EngineFamily.PLAIN
    )
    return ResolvedEngine(
        stored=_echo(requested),
        family=family,
        runtime=image,
        wants="",
        user=_user(requested, str(IMAGE_USER), field),
        image=image,
        preset=bool(name),
    )


def _check_same(requested: wire.Engine, found: tables.CatalogueEngine, field: str) -> None:
    """The version may be the id, as Terraform's provider sends it."""
    for key, given, known in (
        ("engine_name", requested.engine_name, (found.name,)),
        ("engine_version", requested.engine_version, (found.version, found.id)),
    ):
        if given and given.lower() not in (value.lower() for value in known):
            raise invalid(
                errors.NO_SUCH_ENGINE,
                f"{field}.{key}",
                f": {quoted(given)} does not match engine_id {found.id}, which has {known[0]}; leave it out.",
            )


def _echo(requested: wire.Engine) -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.to_builtins(requested)
    if "run_user" in stored:
        stored["run_user"] = str(stored["run_user"])
    return {key: value for key, value in stored.items() if value != ""}


def _user(requested: wire.Engine, default: str, field: str) -> int | None:
    given = "" if requested.run_user is None else str(requested.run_user)
    user_id = given or default
    if not user_id:
        return None
    if not (user_id.isascii() and user_id.isdecimal() and len(user_id) <= 5 and int(user_id) <= HIGHEST_USER):
        raise invalid(
            errors.INVALID,
            f"{field}.run_user",
            f": {quoted(given)} must be a user id from 0 to {HIGHEST_USER}.",
        )
    return int(user_id)


def _unknown(name: str) -> str:
    known = [*tables.engines(), *(engine.version for engine in tables.engines().values())]
    close = difflib.get_close_matches(name[:100], known, 1, cutoff=0.4)
    hint = f"did you mean {close[0]}?" if close else "GET training-job-engines lists all."
    return f": there is no engine {quoted(name)}; {hint}"
