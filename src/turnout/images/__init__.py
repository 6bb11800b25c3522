"""Container images: names, the cache, and how an image gets into it.

`reference`, `image`, `mapping`, `manifest` and `tar` are pure. `cache` is what the rest of the service uses; `unpacker`
is a process without rights, because a layer is not trusted.
"""

from turnout.images.cache import Archive, CachedImage, ImageCache, Source, source_of
from turnout.images.image import Image, ImageConfig, Progress
from turnout.images.mapping import Target, target_of
from turnout.images.reference import Reference, parse

__all__ = [
    "Archive",
    "CachedImage",
    "Image",
    "ImageCache",
    "ImageConfig",
    "Progress",
    "Reference",
    "Source",
    "Target",
    "parse",
    "source_of",
    "target_of",
]
