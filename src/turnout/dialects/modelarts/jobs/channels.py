"""Inputs and outputs: where their data is, where it is mounted, and how the program gets the path."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import decode, errors, locations, wire
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.job import Mount

PERIOD = 30
"""Seconds between uploads of an output."""
DATA_TYPES = ("obs", "modelarts_dataset")
MAX_CHANNELS = 50

_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9_]")


class Channels(NamedTuple):
    """The inputs or outputs of one role. `stored` is what answers show."""

    stored: list[dict[str, Any]]
    mounts: list[Mount]
    arguments: list[tuple[str, str, bool]]
    """(name, path, whether it is an environment variable instead of an option)"""


def variable(name: str) -> str:
    """The environment variable for a channel or a parameter: `train-data` is `train_data`, `3d` is `_3d`."""
    spelled = _NOT_IN_VARIABLES.sub("_", name)
    return f"_{spelled}" if spelled[:1].isdigit() else spelled


ChannelOrList = list[wire.Channel] | wire.Channel | None


def as_list(channels: ChannelOrList) -> list[wire.Channel]:
    """Accepts one object instead of a list, because a client may send back the task of an answer."""
    if channels is None:
        return []
    return [channels] if isinstance(channels, wire.Channel) else channels


def of_task(given: ChannelOrList, in_config: ChannelOrList) -> list[wire.Channel]:
    """A task's own channels, or else those of its `job_config`.

    A client may send back an answer. If a task has several channels, an answer has only the first one here, and all of
    them in `job_config`.
    """
    own, declared = as_list(given), as_list(in_config)
    if isinstance(given, wire.Channel) and declared and declared[0].name == given.name:
        return declared
    return own or declared


def check_no_datasets(inputs: Sequence[wire.Channel], field: str) -> None:
    for index, channel in enumerate(inputs):
        if channel.remote and channel.remote.dataset:
            detail = " cannot be used in tasks: heterogeneous jobs support only OBS."
            raise invalid(errors.BAD_REMOTE, f"{field}[{index}].remote.dataset", detail)


def inputs(
    requested: Sequence[wire.Channel], settings: config.Settings, field: str, first: int = 0
) -> Channels:
    """`first`: the number of inputs of the roles before this one."""
    found = Channels([], [], [])
    for index, channel in enumerate(_checked(requested, field)):
        field_path = f"{field}[{index}]"
        remote = _input_remote(channel, settings, field_path)
        _check_types(channel.remote_constraint, f"{field_path}.remote_constraint")
        _check_allowed(
            channel, channel.remote_constraint, "its remote_constraint takes", f"{field_path}.remote"
        )
        default = f"{locations.ROOT}/inputs/{channel.name}_{first + index}"
        stored = _stored(channel, default, remote, field_path)
        urls = remote.get("obs") or remote["dataset"]
        url = locations.source(
            urls["obs_url"], f"{field_path}.remote.{'obs' if 'obs' in remote else 'dataset'}.obs_url"
        )
        found.mounts.append(Mount(url, _target(stored, field_path), read_only=True))
        _add(found, channel, stored, field_path)
    return found


def outputs(requested: Sequence[wire.Channel], field: str, first: int = 0) -> Channels:
    found = Channels([], [], [])
    for index, channel in enumerate(_checked(requested, field)):
        field_path = f"{field}[{index}]"
        url = _obs_url(channel.remote and channel.remote.obs, f"{field_path}.remote.obs")
        default = f"{locations.ROOT}/outputs/{channel.name}_{first + index}"
        stored = _stored(channel, default, {"obs": {"obs_url": url}}, field_path)
        stored |= {"mode": "upload_periodically", "period": f"{PERIOD}s"}
        source = locations.source(url, f"{field_path}.remote.obs.obs_url")
        found.mounts.append(
            Mount(source, _target(stored, field_path), fetch=False, period=PERIOD, output=True)
        )
        _add(found, channel, stored, field_path)
    return found


def check_distinct(inputs: Sequence[wire.Channel], outputs: Sequence[wire.Channel], field: str) -> None:
    """Raises Invalid if an output has the name of an input: the program would get one path for both."""
    names = {channel.name for channel in inputs}
    for index, channel in enumerate(outputs):
        if channel.name in names:
            detail = f": {quoted(channel.name)} is also the name of an input; use another one."
            raise invalid(errors.BAD_CHANNEL, f"{field}[{index}].name", detail)


def for_algorithm(declared: Sequence[wire.Channel] | None, field: str) -> list[dict[str, Any]]:
    """An algorithm's channels as stored: names without data."""
    stored: list[dict[str, Any]] = []
    for index, channel in enumerate(_checked(declared or (), field)):
        _check_types(channel.remote_constraints, f"{field}[{index}].remote_constraints")
        _check_access(channel, f"{field}[{index}]")
        declaration = msgspec.structs.replace(channel, remote=None, local_dir=None, remote_constraint=None)
        stored.append({"description": "", **msgspec.to_builtins(declaration)})
    return stored


def merge(
    requested: ChannelOrList, declared: Sequence[wire.Channel] | None, field: str, notes: list[str]
) -> list[wire.Channel]:
    """The job's channels, completed from the algorithm's declarations."""
    declared_by_name = {channel.name: channel for channel in declared or ()}
    merged: list[wire.Channel] = []
    for index, channel in enumerate(as_list(requested)):
        declaration = declared_by_name.pop(channel.name, None)
        if declaration is None:
            names = ", ".join(str(declaration.name) for declaration in declared or ()) or "none"
            raise invalid(
                errors.CONTRADICTS,
                f"{field}[{index}].name",
                f": the algorithm has no channel {quoted(channel.name)}; it has {names}.",
            )
        _check_allowed(
            channel, declaration.remote_constraints, "the algorithm takes", f"{field}[{index}].remote"
        )
        merged.append(
            msgspec.structs.replace(
                channel,
                description=channel.description or declaration.description,
                access_method=channel.access_method or declaration.access_method,
            )
        )
    notes += [
        f"{field}: the job does not set {name} of the algorithm, so the program does not get it"
        for name in declared_by_name
    ]
    return merged


def _checked(channels: Sequence[wire.Channel], field: str) -> Sequence[wire.Channel]:
    if len(channels) > MAX_CHANNELS:
        raise invalid(
            errors.BAD_CHANNEL, field, f" has {len(channels)} channels; at most {MAX_CHANNELS} are allowed."
        )
    names = [channel.name for channel in channels]
    decode.check_names(names, field, "channels", errors.BAD_CHANNEL, errors.BAD_CHANNEL)
    return channels


def _input_remote(channel: wire.Channel, settings: config.Settings, field_path: str) -> dict[str, Any]:
    remote = channel.remote
    if remote is None:
        raise invalid(errors.BAD_CHANNEL, f"{field_path}.remote", " is missing.")
    if remote.obs and remote.dataset:
        raise invalid(
            errors.BAD_CHANNEL, f"{field_path}.remote", " must have one of obs and dataset, not both."
        )
    if remote.dataset:
        return {"dataset": _dataset(remote.dataset, settings, f"{field_path}.remote.dataset")}
    if remote.obs is None:
        raise invalid(errors.BAD_REMOTE, f"{field_path}.remote", " must have obs or dataset.")
    return {"obs": {"obs_url": _obs_url(remote.obs, f"{field_path}.remote.obs")}}


def _obs_url(obs: wire.Obs | None, field_path: str) -> str:
    if obs is None or not obs.obs_url:
        raise invalid(errors.BAD_CHANNEL, f"{field_path}.obs_url", " is missing.")
    return obs.obs_url


def _dataset(requested: wire.Dataset, settings: config.Settings, field_path: str) -> dict[str, Any]:
    if not requested.id:
        raise invalid(errors.BAD_CHANNEL, f"{field_path}.id", " is missing.")
    declared = settings.datasets.get(requested.id)
    if declared is None:
        raise invalid(
            errors.NO_SUCH_DATASET,
            f"{field_path}.id",
            f": there is no dataset {quoted(requested.id)}; declare it in the settings as [datasets.<id>] url.",
        )
    if not requested.version_id and requested.service_type != "V3":
        raise invalid(errors.BAD_CHANNEL, f"{field_path}.version_id", " is missing.")
    url = declared.versions.get(requested.version_id) if requested.version_id else declared.url
    if not url:
        versions = ", ".join(declared.versions) or "none"
        missing = (
            f"no version {quoted(requested.version_id)}" if requested.version_id else "no default version"
        )
        raise invalid(
            errors.NO_SUCH_DATASET_VERSION,
            f"{field_path}.version_id",
            f": the dataset {requested.id} has {missing}; its versions are: {versions}.",
        )
    stored = msgspec.to_builtins(requested)
    return {**stored, "name": declared.name or requested.name or requested.id, "obs_url": url}


def _check_types(constraints: Sequence[wire.RemoteConstraint] | None, field_path: str) -> None:
    for index, constraint in enumerate(constraints or ()):
        if constraint.data_type and constraint.data_type not in DATA_TYPES:
            raise invalid(
                errors.BAD_DATA_TYPE,
                f"{field_path}[{index}].data_type",
                f": {quoted(constraint.data_type)} must be one of {', '.join(DATA_TYPES)}.",
            )


def _check_allowed(
    channel: wire.Channel, constraints: Sequence[wire.RemoteConstraint] | None, rule: str, field_path: str
) -> None:
    allowed = [constraint.data_type for constraint in constraints or () if constraint.data_type]
    if not allowed or channel.remote is None:
        return
    kind = "modelarts_dataset" if channel.remote.dataset else "obs"
    if kind not in allowed:
        detail = " or ".join(allowed)
        raise invalid(errors.BAD_DATA_TYPE, field_path, f" is {kind}; {rule} {detail} for {channel.name}.")


def _stored(channel: wire.Channel, default: str, remote: dict[str, Any], field_path: str) -> dict[str, Any]:
    _check_access(channel, field_path)
    stored: dict[str, Any] = msgspec.to_builtins(channel)
    stored.pop("remote_constraints", None)
    return {**stored, "local_dir": channel.local_dir or default, "remote": remote}


def _target(stored: dict[str, Any], field_path: str) -> str:
    return locations.mount_point(stored["local_dir"], f"{field_path}.local_dir", errors.BAD_CHANNEL)


def _check_access(channel: wire.Channel, field_path: str) -> None:
    if channel.access_method not in (None, "", "parameter", "env"):
        detail = f": {quoted(channel.access_method)} must be parameter or env."
        raise invalid(errors.BAD_CHANNEL, f"{field_path}.access_method", detail)


def _add(found: Channels, channel: wire.Channel, stored: dict[str, Any], field_path: str) -> None:
    target = found.mounts[-1].target
    found.stored.append(stored)
    found.arguments.append((channel.name or field_path, target, channel.access_method == "env"))
