"""What is kept of an algorithm: its document in the shape of an answer."""

from typing import Any

import msgspec

from turnout import config
from turnout.dialects.modelarts import auto_search, channels, engine, faults, parameters, program, wire
from turnout.dialects.modelarts.faults import shown, wrong

REQUIREMENTS = {
    "flavor_type": ("CPU", "GPU", "Ascend"),
    "device_distributed_mode": ("multiple", "singular"),
    "host_distributed_mode": ("multiple", "singular"),
}


def keep_algorithm(document: wire.Algorithm, settings: config.Settings, user: str = "") -> dict[str, Any]:
    """Whole but for `metadata.id`, the times and the size of its code, which are for the caller to put in."""
    config_ = document.job_config
    if config_ is None:
        raise wrong(faults.BAD_PARAM, "job_config", " is missing.")
    search = document.advanced_config and document.advanced_config.auto_search
    kept: dict[str, Any] = {
        "metadata": _metadata(document.metadata, user),
        "job_config": _job_config(config_, settings),
    }
    if search is not None and auto_search.asked(search):
        names = [str(parameter.name) for parameter in config_.parameters or ()]
        auto_search.check(search, names, "advanced_config.auto_search")
    kept["resource_requirements"] = _requirements(document.resource_requirements)
    kept["advanced_config"] = {"auto_search": auto_search.kept(search)} if auto_search.asked(search) else {}
    return kept


def _metadata(metadata: wire.AlgorithmMetadata, user: str) -> dict[str, Any]:
    return {
        "name": metadata.name,
        "description": metadata.description or "",
        "workspace_id": metadata.workspace_id or "0",
        "ai_project": metadata.ai_project or "default-ai-project",
        "user_name": user,
        "domain_id": "",
        "source": "custom",
        "api_version": "",
        "is_valid": True,
        "state": "",
        "tags": None,
        "attr_list": None,
        "version_num": 0,
        "size": 0,
    }


def _job_config(asked: wire.AlgorithmConfig, settings: config.Settings) -> dict[str, Any]:
    field, command = "job_config", asked.command or ""
    if command and not asked.engine:
        told = " is missing: a command runs in a custom image, or in that of a preset engine."
        raise wrong(faults.NO_COMMAND, f"{field}.engine.image_url", told)
    chosen = engine.choose(asked.engine, settings, f"{field}.engine")
    program.check_start(chosen, asked.code_dir or "", asked.boot_file or "", command, field)
    if asked.code_dir and asked.boot_file:
        program.check_boot_file(asked.code_dir, asked.boot_file, not chosen.image, field)
    kept = {
        key: value
        for key, value in msgspec.to_builtins(asked).items()
        if key in ("code_dir", "boot_file", "command") and value
    }
    return {
        **kept,
        "parameters": parameters.declare(asked.parameters, f"{field}.parameters"),
        "inputs": channels.declare(asked.inputs, f"{field}.inputs"),
        "outputs": channels.declare(asked.outputs, f"{field}.outputs"),
        "engine": chosen.kept,
        "parameters_customization": bool(asked.parameters_customization),
    }


def _requirements(asked: list[wire.Requirement] | None) -> list[dict[str, Any]]:
    """The request's table calls the list `values`, the answer's `value`: both are there."""
    kept: list[dict[str, Any]] = []
    for index, requirement in enumerate(asked or ()):
        place = f"resource_requirements[{index}]"
        known = REQUIREMENTS.get(requirement.key or "")
        if known is None:
            told = f": {shown(requirement.key)} must be one of {', '.join(REQUIREMENTS)}."
            raise wrong(faults.BAD_PARAM, f"{place}.key", told)
        if requirement.operator not in (None, "in"):
            raise wrong(faults.BAD_PARAM, f"{place}.operator", f": {shown(requirement.operator)} must be in.")
        values = requirement.values or requirement.value or []
        for value in values:
            if value not in known:
                told = f": {shown(value)} must be one of {', '.join(known)}."
                raise wrong(faults.BAD_PARAM, f"{place}.values", told)
        kept.append({"key": requirement.key, "value": values, "values": values, "operator": "in"})
    return kept
