"""Inputs and outputs: where their data is, where the program finds it and how it is told."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import faults, places, wire
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.job import Mount

PERIOD = 30
DATA_TYPES = ("obs", "modelarts_dataset")
MAX_CHANNELS = 50

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Channels(NamedTuple):
    """Of one role. `kept` is what answers show."""

    kept: list[dict[str, Any]]
    mounts: list[Mount]
    told: list[tuple[str, str, bool]]
    """(name, path, whether by an environment variable instead of an option)"""


Channelled = list[wire.Channel] | wire.Channel | None


def several(channels: Channelled) -> list[wire.Channel]:
    """A task's answer has a single object where its request has a list."""
    if channels is None:
        return []
    return [channels] if isinstance(channels, wire.Channel) else channels


def inputs(asked: Sequence[wire.Channel], settings: config.Settings, field: str, first: int = 0) -> Channels:
    """`first`: how many inputs other roles have already."""
    found = Channels([], [], [])
    for index, channel in enumerate(_checked(asked, field)):
        place = f"{field}[{index}]"
        remote = _input_remote(channel, settings, place)
        _check_types(channel.remote_constraint, f"{place}.remote_constraint")
        usual = f"{places.ROOT}/inputs/{channel.name}_{first + index}"
        kept = _kept(channel, usual, remote, place)
        urls = remote.get("obs") or remote["dataset"]
        url = places.source(
            urls["obs_url"], f"{place}.remote.{'obs' if 'obs' in remote else 'dataset'}.obs_url"
        )
        found.mounts.append(Mount(url, _target(kept, place), read_only=True))
        _add(found, channel, kept, place)
    return found


def outputs(asked: Sequence[wire.Channel], field: str, first: int = 0) -> Channels:
    found = Channels([], [], [])
    for index, channel in enumerate(_checked(asked, field)):
        place = f"{field}[{index}]"
        url = _obs_url(channel.remote and channel.remote.obs, f"{place}.remote.obs")
        usual = f"{places.ROOT}/outputs/{channel.name}_{first + index}"
        kept = _kept(channel, usual, {"obs": {"obs_url": url}}, place)
        kept |= {"mode": "upload_periodically", "period": PERIOD}
        source = places.source(url, f"{place}.remote.obs.obs_url")
        found.mounts.append(Mount(source, _target(kept, place), fetch=False, period=PERIOD))
        _add(found, channel, kept, place)
    return found


def declare(declared: Sequence[wire.Channel] | None, field: str) -> list[dict[str, Any]]:
    """An algorithm's channels as answers show them: names without data."""
    kept: list[dict[str, Any]] = []
    for index, channel in enumerate(_checked(declared or (), field)):
        _check_types(channel.remote_constraints, f"{field}[{index}].remote_constraints")
        _check_access(channel, f"{field}[{index}]")
        whole = msgspec.structs.replace(channel, remote=None, local_dir=None, remote_constraint=None)
        kept.append({"description": "", **msgspec.to_builtins(whole)})
    return kept


def merge(
    asked: Channelled, declared: Sequence[wire.Channel] | None, field: str, notes: list[str]
) -> list[wire.Channel]:
    """The job's channels, each with what the algorithm says of it."""
    mine = several(asked)
    known = {channel.name: channel for channel in declared or ()}
    merged: list[wire.Channel] = []
    for index, channel in enumerate(mine):
        of = known.pop(channel.name, None)
        if of is None:
            has = ", ".join(str(one.name) for one in declared or ()) or "none"
            raise wrong(
                faults.CONTRADICTS,
                f"{field}[{index}].name",
                f": the algorithm has no channel {shown(channel.name)}; it has {has}.",
            )
        _check_allowed(channel, of, f"{field}[{index}].remote")
        merged.append(
            msgspec.structs.replace(
                channel,
                description=channel.description or of.description,
                access_method=channel.access_method or of.access_method,
            )
        )
    notes += [
        f"{field}: the algorithm's {name} is not given, and its program is not told of it" for name in known
    ]
    return merged


def _checked(channels: Sequence[wire.Channel], field: str) -> Sequence[wire.Channel]:
    if len(channels) > MAX_CHANNELS:
        raise wrong(faults.BAD_CHANNEL, field, f" has {len(channels)} channels; {MAX_CHANNELS} are possible.")
    seen: set[str] = set()
    for index, channel in enumerate(channels):
        place = f"{field}[{index}].name"
        if channel.name is None:
            raise wrong(faults.BAD_CHANNEL, place, " is missing.")
        if not _NAME.fullmatch(channel.name):
            rule = "must have 1 to 64 characters: letters, digits, `_` and `-`."
            raise wrong(faults.BAD_CHANNEL, place, f": {shown(channel.name)} {rule}")
        if channel.name in seen:
            raise wrong(faults.BAD_CHANNEL, place, f": there are two channels {channel.name!r}.")
        seen.add(channel.name)
    return channels


def _input_remote(channel: wire.Channel, settings: config.Settings, place: str) -> dict[str, Any]:
    remote = channel.remote
    if remote is None:
        raise wrong(faults.BAD_CHANNEL, f"{place}.remote", " is missing.")
    if remote.obs and remote.dataset:
        raise wrong(faults.BAD_CHANNEL, f"{place}.remote", " must have one of obs and dataset, not both.")
    if remote.dataset:
        return {"dataset": _dataset(remote.dataset, settings, f"{place}.remote.dataset")}
    if remote.obs is None:
        raise wrong(faults.BAD_REMOTE, f"{place}.remote", " must have obs or dataset.")
    return {"obs": {"obs_url": _obs_url(remote.obs, f"{place}.remote.obs")}}


def _obs_url(obs: wire.Obs | None, place: str) -> str:
    if obs is None or not obs.obs_url:
        raise wrong(faults.BAD_CHANNEL, f"{place}.obs_url", " is missing.")
    return obs.obs_url


def _dataset(asked: wire.Dataset, settings: config.Settings, place: str) -> dict[str, Any]:
    if not asked.id:
        raise wrong(faults.BAD_CHANNEL, f"{place}.id", " is missing.")
    known = settings.datasets.get(asked.id)
    if known is None:
        raise wrong(
            faults.NO_DATASET,
            f"{place}.id",
            f": there is no dataset {shown(asked.id)}; one is declared in the settings as [datasets.<id>] url.",
        )
    if not asked.version_id and asked.service_type != "V3":
        raise wrong(faults.BAD_CHANNEL, f"{place}.version_id", " is missing.")
    url = known.versions.get(asked.version_id or "", known.url)
    if not url:
        has = ", ".join(known.versions) or "none"
        raise wrong(
            faults.NO_DATASET_VERSION,
            f"{place}.version_id",
            f": the dataset has no version {shown(asked.version_id)}; it has {has}.",
        )
    kept = msgspec.to_builtins(asked)
    return {**kept, "name": known.name or asked.name or asked.id, "obs_url": url}


def _check_types(constraints: Sequence[wire.RemoteConstraint] | None, place: str) -> None:
    for index, constraint in enumerate(constraints or ()):
        if constraint.data_type and constraint.data_type not in DATA_TYPES:
            raise wrong(
                faults.BAD_DATA_TYPE,
                f"{place}[{index}].data_type",
                f": {shown(constraint.data_type)} must be one of {', '.join(DATA_TYPES)}.",
            )


def _check_allowed(channel: wire.Channel, of: wire.Channel, place: str) -> None:
    allowed = [one.data_type for one in of.remote_constraints or () if one.data_type]
    if not allowed or channel.remote is None:
        return
    kind = "modelarts_dataset" if channel.remote.dataset else "obs"
    if kind not in allowed:
        told = " or ".join(allowed)
        raise wrong(
            faults.BAD_DATA_TYPE, place, f" is {kind}; the algorithm takes {told} for {channel.name}."
        )


def _kept(channel: wire.Channel, usual: str, remote: dict[str, Any], place: str) -> dict[str, Any]:
    _check_access(channel, place)
    kept: dict[str, Any] = msgspec.to_builtins(channel)
    kept.pop("remote_constraints", None)
    return {**kept, "local_dir": channel.local_dir or usual, "remote": remote}


def _target(kept: dict[str, Any], place: str) -> str:
    return places.mount_point(kept["local_dir"], f"{place}.local_dir", faults.BAD_CHANNEL)


def _check_access(channel: wire.Channel, place: str) -> None:
    if channel.access_method in (None, "", "parameter"):
        return
    if channel.access_method != "env":
        told = f": {shown(channel.access_method)} must be parameter or env."
        raise wrong(faults.BAD_CHANNEL, f"{place}.access_method", told)
    if not _VARIABLE.fullmatch(channel.name or ""):
        told = f": {channel.name!r} cannot be an environment variable; name it with letters, digits and `_`."
        raise wrong(faults.BAD_CHANNEL, f"{place}.name", told)


def _add(found: Channels, channel: wire.Channel, kept: dict[str, Any], place: str) -> None:
    target = found.mounts[-1].target
    found.kept.append(kept)
    found.told.append((channel.name or place, target, channel.access_method == "env"))
