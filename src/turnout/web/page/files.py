"""The files of the page, read and compressed once, below an address that has the hash of all of them.

So a browser may keep them for ever, and never mixes the files of two versions.
"""

import asyncio
import base64
import gzip
import hashlib
import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from turnout import pools

PREFIX = "/turnout/page"
PARTS = {
    "preact": "preact.js",
    "preact/hooks": "hooks.js",
    "htm": "htm.js",
    "@preact/signals": "signals.js",
    "@preact/signals-core": "signals-core.js",
    "uplot": "uplot.js",
    "@xterm/xterm": "xterm.js",
    "@xterm/addon-fit": "xterm-fit.js",
}
"""The names that modules import, and their files."""
_FIRST = ("preact.js", "hooks.js", "htm.js", "signals.js", "signals-core.js")
"""The parts that every view needs."""
_TYPES = {
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class File(NamedTuple):
    media_type: str
    packed: bytes

    def unpacked(self) -> bytes:
        return gzip.decompress(self.packed)


class Files(NamedTuple):
    by_name: dict[str, File]
    index: File
    base: str
    """The address of their directory."""
    import_map: str
    policy: str
    """The Content-Security-Policy of the index."""
    terminal: str
    """The template of the page of a shell."""

    @property
    def script_source(self) -> str:
        """The rule that allows our modules, and the import map by its hash."""
        return _script_source(self.import_map)


class PageFiles:
    """Loads the files when a browser first asks."""

    def __init__(self) -> None:
        self._files: Files | None = None
        self._loading = asyncio.Lock()

    async def get(self) -> Files | None:
        """None if the parts were not fetched."""
        async with self._loading:
            if self._files is None:
                self._files = await pools.service.run(pools.OWN, load)
        return self._files


def load() -> Files | None:
    """None if the parts were not fetched. Takes some 50 ms."""
    folder = resources.files("turnout.web.page")
    static, parts = folder / "static", folder / "parts"
    if not all((parts / name).is_file() for name in PARTS.values()):
        return None
    found = {f"parts/{one.name}": one for one in parts.iterdir() if _type(one.name)}
    found |= {one.name: one for one in static.iterdir() if _type(one.name)}
    found |= {f"views/{one.name}": one for one in (static / "views").iterdir() if _type(one.name)}
    texts = {name: found[name].read_bytes() for name in sorted(found)}
    index = (static / "index.html").read_text()
    digest = _digest(index, texts)
    base = f"{PREFIX}/{digest}"
    import_map = json.dumps({"imports": {name: f"{base}/parts/{file}" for name, file in PARTS.items()}})
    filled = (
        index.replace("{{base}}", base)
        .replace("{{import-map}}", import_map)
        .replace("{{preload}}", _preload(base, static))
    )
    by_name = {f"{digest}/{name}": File(_type(name), _pack(text)) for name, text in texts.items()}
    packed = File("text/html; charset=utf-8", _pack(filled.encode()))
    terminal = (static / "terminal.html").read_text()
    return Files(by_name, packed, base, import_map, _policy(import_map), terminal)


def _type(name: str) -> str:
    return _TYPES.get(name.rpartition(".")[2], "")


def _digest(index: str, texts: dict[str, bytes]) -> str:
    whole = hashlib.sha256(index.encode())
    for name, text in texts.items():
        whole.update(f"{name} {len(text)}\n".encode() + text)
    return whole.hexdigest()[:16]


def _pack(text: bytes) -> bytes:
    return gzip.compress(text, 6, mtime=0)


def _preload(base: str, static: Traversable) -> str:
    own = sorted(one.name for one in static.iterdir() if one.name.endswith(".js") and one.name != "theme.js")
    first = [*(f"parts/{name}" for name in _FIRST), *(name for name in own if name not in _LATER)]
    return "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in first)


_LATER = (
    "ansi.js",
    "chart.js",
    "gang.js",
    "job_metrics.js",
    "lines.js",
    "log_window.js",
    "metrics.js",
    "terminal.js",
)
"""Modules that only some views import."""


def _script_source(import_map: str) -> str:
    map_hash = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    return f"script-src 'self' 'sha256-{map_hash}'"


def _policy(import_map: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            _script_source(import_map),
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    )
