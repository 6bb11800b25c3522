"""Merges a job's `algorithm` with the stored or subscribed algorithm that it names."""

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import decode, errors, wire
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.jobs import channels, parameters
from turnout.errors import Invalid, TurnoutError
from turnout.job import Asset

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(wire.Algorithm).decode


class Merged(NamedTuple):
    algorithm: wire.JobAlgorithm
    """Complete: it has all that the program needs."""
    parameters: list[dict[str, Any]]
    requirements: list[wire.Requirement]


def merge(
    requested: wire.JobAlgorithm, asset: Asset | None, settings: config.Settings, notes: list[str]
) -> Merged:
    """`asset`: the algorithm with the requested id. Raises Invalid with code 2755 if it is None."""
    if requested.id and (requested.subscription_id or requested.item_version_id):
        raise invalid(errors.INVALID, "algorithm.id", " cannot be used with subscription_id.")
    if requested.id:
        if asset is None:
            raise Invalid("algorithm not found.", field="algorithm.id", code=errors.NO_SUCH_ALGORITHM)
        return _apply(requested, _decode(asset.document), notes)
    if requested.subscription_id or requested.item_version_id:
        return _apply(requested, _subscribed(requested, settings), notes)
    return Merged(requested, parameters.for_job(requested.parameters, "algorithm.parameters"), [])


def _apply(requested: wire.JobAlgorithm, algorithm: wire.Algorithm, notes: list[str]) -> Merged:
    declared = algorithm.job_config or wire.AlgorithmConfig()
    for key in ("code_dir", "boot_file", "command"):
        _check_same(getattr(requested, key), getattr(declared, key), f"algorithm.{key}")
    given, known = requested.engine or wire.Engine(), declared.engine or wire.Engine()
    for key in ("engine_id", "engine_name", "image_url"):
        _check_same(getattr(given, key), getattr(known, key), f"algorithm.engine.{key}")
    if not known.engine_id or not tables.is_version(known.engine_id, given.engine_version):
        _check_same(given.engine_version, known.engine_version, "algorithm.engine.engine_version")
    complete = msgspec.structs.replace(
        requested,
        name=algorithm.metadata.name,
        code_dir=declared.code_dir,
        boot_file=declared.boot_file,
        command=declared.command,
        engine=declared.engine,
        inputs=channels.merge(requested.inputs, declared.inputs, "algorithm.inputs", notes),
        outputs=channels.merge(requested.outputs, declared.outputs, "algorithm.outputs", notes),
    )
    merged = parameters.merge(
        requested.parameters,
        declared.parameters or (),
        bool(declared.parameters_customization),
        "algorithm.parameters",
    )
    return Merged(complete, merged, algorithm.resource_requirements or [])


def _check_same(value: str | None, known: str | None, field: str) -> None:
    """A copy of a job repeats the fields of its algorithm, which is allowed if they are equal."""
    if value and value != known:
        detail = f"the algorithm has {quoted(known)}" if known else "the algorithm has none"
        raise invalid(errors.CONTRADICTS, field, f": {quoted(value)}, but {detail}; leave it out.")


def _subscribed(requested: wire.JobAlgorithm, settings: config.Settings) -> wire.Algorithm:
    for key in ("subscription_id", "item_version_id"):
        if not getattr(requested, key):
            detail = " is missing: set both subscription_id and item_version_id."
            raise invalid(errors.INVALID, f"algorithm.{key}", detail)
    known = settings.subscriptions.get(requested.subscription_id or "")
    if known is None:
        raise invalid(
            errors.NO_SUCH_ALGORITHM,
            "algorithm.subscription_id",
            ": there is no such subscription; declare it in the settings as [subscriptions.<id>].",
        )
    file = _version_file(known, requested.item_version_id or "")
    if not file:
        versions = ", ".join(known.versions) or "none"
        raise invalid(
            errors.NO_SUCH_ALGORITHM,
            "algorithm.item_version_id",
            f": the subscription has no version {quoted(requested.item_version_id)}; its versions are: {versions}.",
        )
    try:
        return _read(file)
    except (OSError, TurnoutError) as error:
        # Callers must not see the file's path.
        _log.warning("[subscriptions.%s] %s cannot be used: %s", requested.subscription_id, file, error)
        detail = ": the file that the settings name for it cannot be used; the service's log says why."
        raise invalid(errors.NO_SUCH_ALGORITHM, "algorithm.subscription_id", detail) from None


def _version_file(known: config.Subscription, version: str) -> str | None:
    """`algorithm` stands for every version of a subscription whose versions the settings do not list."""
    return known.versions.get(version) if known.versions else known.algorithm


@lru_cache(maxsize=64)
def _read(file: str) -> wire.Algorithm:
    """Cached, because the file is a part of the settings, which are read once."""
    return decode.decode_algorithm(Path(file).read_bytes())
