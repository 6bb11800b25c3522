"""The dialects, and the context that they are made of."""

import shutil
import time
from collections.abc import Callable, Sequence

from turnout.dialects import Context, Conversion, Dialect, Submit
from turnout.runtimes import default_runtime
from turnout.service import Assets, Clusters, Objects, Searches, Sources
from turnout.service.images import ImageRules

from .base import Base
from .engines import Engines
from .jobs import JobParts
from .pages import Pages


def make_dialects(
    kinds: Sequence[Callable[[Context], Dialect]],
    base: Base,
    engines: Engines,
    parts: JobParts,
    pages: Pages,
) -> list[Dialect]:
    submit: dict[str, Submit] = {}
    conversions: dict[str, Conversion] = {}
    objects = Objects(base.storage)
    context = Context(
        jobs=parts.jobs,
        logs=parts.logs,
        searches=Searches(base.store, parts.control, parts.search_controller),
        assets=Assets(base.store),
        objects=objects,
        sweeper=parts.sweeper,
        sources=Sources(base.storage, objects),
        clusters=Clusters(parts.jobs, engines.remote, base.settings),
        images=_image_rules(base, engines),
        runtimes=engines.local.runtimes,
        image_cache=base.images,
        audit=base.audit,
        webhooks=parts.webhooks,
        keys=base.keys,
        page_sessions=pages.sessions,
        settings=base.settings,
        bodies=base.bodies,
        web_access=pages.links.uris,
        home_page=pages.page.home,
        submit=submit,
        conversions=conversions,
        clock=time.time_ns,
    )
    dialects = [kind(context) for kind in kinds]
    parts.make_trial_job.update({one.name: one.make_trial_job for one in dialects if one.make_trial_job})
    submit |= {one.name: one.submit for one in dialects if one.submit}
    conversions |= {one.name: one.conversion for one in dialects if one.conversion}
    return dialects


def _image_rules(base: Base, engines: Engines) -> ImageRules:
    settings = base.settings
    remote = settings.remote_clusters()
    return ImageRules(
        settings.images,
        settings.runtimes,
        base.images,
        settings.registries,
        [name for name, one in remote.items() if one.engine == "kubernetes"],
        [name for name, one in remote.items() if one.engine != "kubernetes"],
        host_python=settings.loopback,
        default=default_runtime(settings.runtimes, settings.runtime_defaults),
        no_images=engines.local.no_images,
        no_pull=lambda: "" if shutil.which("skopeo") else "skopeo, which pulls images, is not installed",
    )
