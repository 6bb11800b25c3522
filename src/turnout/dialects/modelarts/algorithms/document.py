"""The stored document of an algorithm. It has the form of an answer."""

from typing import Any

import msgspec

from turnout.dialects.modelarts import errors, wire
from turnout.dialects.modelarts.catalogue import engine
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.jobs import channels, parameters
from turnout.dialects.modelarts.names import DEFAULT_AI_PROJECT, DEFAULT_WORKSPACE
from turnout.dialects.modelarts.program import build
from turnout.dialects.modelarts.search import definition

REQUIREMENTS = {
    "flavor_type": ("CPU", "GPU", "Ascend"),
    "device_distributed_mode": ("multiple", "singular"),
    "host_distributed_mode": ("multiple", "singular"),
}


def stored_algorithm(document: wire.Algorithm, user: str = "") -> dict[str, Any]:
    """Without `metadata.id`, the times and the size of the code, which the caller adds."""
    config_ = document.job_config
    if config_ is None:
        raise invalid(errors.INVALID, "job_config", " is missing.")
    search = document.advanced_config and document.advanced_config.auto_search
    stored: dict[str, Any] = {
        "metadata": _metadata(document.metadata, user),
        "job_config": _job_config(config_),
    }
    if search is not None and definition.is_given(search):
        names = [str(parameter.name) for parameter in config_.parameters or ()]
        definition.check(search, names, "advanced_config.auto_search")
    stored["resource_requirements"] = _requirements(document.resource_requirements)
    stored["advanced_config"] = (
        {"auto_search": definition.stored(search)} if definition.is_given(search) else {}
    )
    return stored


def _metadata(metadata: wire.AlgorithmMetadata, user: str) -> dict[str, Any]:
    return {
        "name": metadata.name,
        "description": metadata.description or "",
        "workspace_id": metadata.workspace_id or DEFAULT_WORKSPACE,
        "ai_project": metadata.ai_project or DEFAULT_AI_PROJECT,
        "user_name": user,
        "domain_id": "",
        "source": "custom",
        "api_version": "",
        "is_valid": True,
        "state": "",
        "tags": msgspec.to_builtins(metadata.tags) if metadata.tags else None,
        "attr_list": None,
        "version_num": 0,
        "size": 0,
    }


def _job_config(requested: wire.AlgorithmConfig) -> dict[str, Any]:
    field, command = "job_config", requested.command or ""
    if command and not requested.engine:
        detail = " is missing: a command needs a custom image or a preset engine."
        raise invalid(errors.NO_COMMAND, f"{field}.engine.image_url", detail)
    resolved = engine.resolve(requested.engine, f"{field}.engine")
    build.check_start(resolved, requested.code_dir or "", requested.boot_file or "", command, field)
    if requested.code_dir and requested.boot_file:
        build.check_boot_file(requested.code_dir, requested.boot_file, not resolved.image, field)
    channels.check_distinct(requested.inputs or (), requested.outputs or (), f"{field}.outputs")
    stored = {
        key: value
        for key, value in msgspec.to_builtins(requested).items()
        if key in ("code_dir", "boot_file", "command") and value
    }
    return {
        **stored,
        "parameters": parameters.for_algorithm(requested.parameters, f"{field}.parameters"),
        "inputs": channels.for_algorithm(requested.inputs, f"{field}.inputs"),
        "outputs": channels.for_algorithm(requested.outputs, f"{field}.outputs"),
        "engine": resolved.stored,
        "parameters_customization": bool(requested.parameters_customization),
    }


def _requirements(requested: list[wire.Requirement] | None) -> list[dict[str, Any]]:
    """Requests call the list `values`, answers `value`: both are stored."""
    stored: list[dict[str, Any]] = []
    for index, requirement in enumerate(requested or ()):
        field_path = f"resource_requirements[{index}]"
        known = REQUIREMENTS.get(requirement.key or "")
        if known is None:
            detail = f": {quoted(requirement.key)} must be one of {', '.join(REQUIREMENTS)}."
            raise invalid(errors.INVALID, f"{field_path}.key", detail)
        if requirement.operator not in (None, "in"):
            raise invalid(
                errors.INVALID, f"{field_path}.operator", f": {quoted(requirement.operator)} must be in."
            )
        values = requirement.values or requirement.value or []
        for value in values:
            if value not in known:
                detail = f": {quoted(value)} must be one of {', '.join(known)}."
                raise invalid(errors.INVALID, f"{field_path}.values", detail)
        stored.append({"key": requirement.key, "value": values, "values": values, "operator": "in"})
    return stored
