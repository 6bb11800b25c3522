"""Which entry of `[registries]` a project uses for an image, and who may see what it brought. Pure."""

from collections.abc import Mapping

from turnout.images.reference import Reference
from turnout.registries import Registry


def registry_for(host: str, project: str, registries: Mapping[str, Registry]) -> tuple[str, Registry] | None:
    """An entry that names the project wins over one for every project."""
    found = [(name, one) for name, one in registries.items() if (one.host or name).lower() == host]
    named = [(name, one) for name, one in found if project in one.projects]
    for_all = [(name, one) for name, one in found if not one.projects]
    return next(iter(named + for_all), None)


def scope_of(reference: Reference, project: str, registries: Mapping[str, Registry]) -> str:
    """The scope of the image in the cache: the entry whose credentials bring it; empty: it is for every project."""
    found = registry_for(reference.registry, project, registries)
    return found[0] if found and (found[1].username or found[1].projects) else ""


def may_see(scope: str, project: str, registries: Mapping[str, Registry]) -> bool:
    if not scope:
        return True
    one = registries.get(scope)
    return one is not None and (not one.projects or project in one.projects)
