"""Makes images without a registry: layers as tar archives, in a directory of the OCI layout."""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class Layer:
    """A tar archive, made entry by entry; it takes what tarfile would refuse too."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - in memory

    def file(self, name: str, content: bytes | str = b"", mode: int = 0o644) -> "Layer":
        data = content.encode() if isinstance(content, str) else content
        return self.entry(name, tarfile.REGTYPE, mode, data=data)

    def directory(self, name: str, mode: int = 0o755) -> "Layer":
        return self.entry(name, tarfile.DIRTYPE, mode)

    def link(self, name: str, target: str) -> "Layer":
        return self.entry(name, tarfile.SYMTYPE, 0o777, target)

    def hard_link(self, name: str, target: str) -> "Layer":
        return self.entry(name, tarfile.LNKTYPE, 0o644, target)

    def entry(self, name: str, kind: bytes, mode: int, target: str = "", data: bytes = b"") -> "Layer":
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.size, info.mtime = (
            kind,
            mode,
            target,
            len(data),
            1_600_000_000,
        )
        self._tar.addfile(info, io.BytesIO(data))
        return self

    @property
    def tar(self) -> bytes:
        self._tar.close()
        return self._file.getvalue()


class Layout:
    """A directory with one image."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def image(
        self,
        *layers: bytes,
        tag: str = "latest",
        diff_ids: list[str] | None = None,
        blobs: list[bytes] | None = None,
        kind: str = "tar+gzip",
        **config: Any,
    ) -> "Layout":
        """The lowest layer first."""
        blobs = blobs or [gzip.compress(layer, 1, mtime=0) for layer in layers]
        kind = f"application/vnd.oci.image.layer.v1.{kind}"
        found = diff_ids or [digest(layer) for layer in layers]
        return self._image([self.put(blob, kind) for blob in blobs], found, tag, config)

    def image_of(self, *archives: Path, tag: str = "latest", **config: Any) -> "Layout":
        """The same with large layers: tar archives, which are moved into the layout. They are not compressed."""
        layers: list[dict[str, Any]] = []
        for archive in archives:
            with archive.open("rb") as file:
                name = hashlib.file_digest(file, "sha256").hexdigest()
            archive.rename(self.blobs / name)
            size = (self.blobs / name).stat().st_size
            kind = "application/vnd.oci.image.layer.v1.tar"
            layers.append({"mediaType": kind, "digest": f"sha256:{name}", "size": size})
        return self._image(layers, [one["digest"] for one in layers], tag, config)

    def _image(
        self, layers: list[dict[str, Any]], diff_ids: list[str], tag: str, config: dict[str, Any]
    ) -> "Layout":
        document = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.put(json.dumps(document).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": layers,
        }
        self.manifest = self.put(json.dumps(manifest).encode(), manifest["mediaType"])
        self.digests = {
            "manifest": self.manifest["digest"],
            "config": manifest["config"]["digest"],
            "layer": manifest["layers"][0]["digest"],
        }
        self.index(self.manifest, tag)
        return self

    def multi_platform(self, tag: str = "latest") -> None:
        """Puts the image into an index."""
        kind = "application/vnd.oci.image.index.v1+json"
        platform = {"architecture": ARCHITECTURE, "os": "linux"}
        manifests = [self.manifest | {"platform": platform}]
        index = {"schemaVersion": 2, "mediaType": kind, "manifests": manifests}
        self.index(self.put(json.dumps(index).encode(), kind), tag)

    def index(self, descriptor: dict[str, Any], tag: str) -> None:
        named = descriptor | {"annotations": {"org.opencontainers.image.ref.name": tag}}
        (self.directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))

    def put(self, data: bytes, kind: str) -> dict[str, Any]:
        name = digest(data)
        (self.blobs / name.removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": kind, "digest": name, "size": len(data)}

    def source(self, tag: str = "latest") -> str:
        return f"oci:{self.directory}:{tag}"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
