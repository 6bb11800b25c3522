"""A job's `algorithm` with what the algorithm that it names has for it."""

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import channels, decode, faults, parameters, wire
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.errors import Invalid, TurnoutError
from turnout.job import Asset

_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(wire.Algorithm).decode


class Merged(NamedTuple):
    algorithm: wire.JobAlgorithm
    """Whole: it says all that is to run."""
    parameters: list[dict[str, Any]]
    requirements: list[wire.Requirement]


def merge(
    asked: wire.JobAlgorithm, asset: Asset | None, settings: config.Settings, notes: list[str]
) -> Merged:
    """`asset`: the algorithm of that id, if there is one. Raises Invalid with 2755 where it is not."""
    if asked.id and (asked.subscription_id or asked.item_version_id):
        raise wrong(faults.BAD_PARAM, "algorithm.id", " and subscription_id exclude each other.")
    if asked.id:
        if asset is None:
            raise Invalid(
                "algorithm not found.", field="algorithm.id", code=f"ModelArts.{faults.NO_ALGORITHM}"
            )
        return _laid_over(asked, _decode(asset.document), notes)
    if asked.subscription_id or asked.item_version_id:
        return _laid_over(asked, _subscribed(asked, settings), notes)
    return Merged(asked, parameters.own(asked.parameters, "algorithm.parameters"), [])


def _laid_over(asked: wire.JobAlgorithm, algorithm: wire.Algorithm, notes: list[str]) -> Merged:
    has = algorithm.job_config or wire.AlgorithmConfig()
    for key in ("code_dir", "boot_file", "command"):
        _check_same(getattr(asked, key), getattr(has, key), f"algorithm.{key}")
    for key in ("engine_id", "engine_name", "engine_version", "image_url"):
        _check_same(
            asked.engine and getattr(asked.engine, key),
            has.engine and getattr(has.engine, key),
            f"algorithm.engine.{key}",
        )
    whole = msgspec.structs.replace(
        asked,
        name=algorithm.metadata.name,
        code_dir=has.code_dir,
        boot_file=has.boot_file,
        command=has.command,
        engine=has.engine,
        inputs=channels.merge(asked.inputs, has.inputs, "algorithm.inputs", notes),
        outputs=channels.merge(asked.outputs, has.outputs, "algorithm.outputs", notes),
    )
    merged = parameters.merge(
        asked.parameters, has.parameters or (), bool(has.parameters_customization), "algorithm.parameters"
    )
    return Merged(whole, merged, algorithm.resource_requirements or [])


def _check_same(said: str | None, known: str | None, field: str) -> None:
    """A job that is copied says again what its algorithm says."""
    if said and said != known:
        told = f"the algorithm has {shown(known)}" if known else "the algorithm has none"
        raise wrong(faults.CONTRADICTS, field, f": {shown(said)}, but {told}; leave it out.")


def _subscribed(asked: wire.JobAlgorithm, settings: config.Settings) -> wire.Algorithm:
    for key in ("subscription_id", "item_version_id"):
        if not getattr(asked, key):
            told = " is missing: subscription_id and item_version_id go together."
            raise wrong(faults.BAD_PARAM, f"algorithm.{key}", told)
    known = settings.subscriptions.get(asked.subscription_id or "")
    file = known and known.versions.get(asked.item_version_id or "", known.algorithm)
    if not file:
        raise wrong(
            faults.NO_ALGORITHM,
            "algorithm.subscription_id" if known is None else "algorithm.item_version_id",
            ": there is no such subscription; one is declared in the settings as [subscriptions.<id>] algorithm.",
        )
    try:
        return _read(file)
    except (OSError, TurnoutError) as error:
        # Where it lies is nothing for callers to know.
        _log.warning("[subscriptions.%s] %s cannot be used: %s", asked.subscription_id, file, error)
        told = ": what the settings have for it cannot be used; the log of the service says why."
        raise wrong(faults.NO_ALGORITHM, "algorithm.subscription_id", told) from None


@lru_cache(maxsize=64)
def _read(file: str) -> wire.Algorithm:
    """Part of the settings, and like them read once."""
    return decode.decode_algorithm(Path(file).read_bytes())
