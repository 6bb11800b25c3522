"""Tiny wheels, with which environments are made without a package index."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(
    directory: Path, name: str, version: str = "1.0", *, files: Mapping[str, str] = {}, script: str = ""
) -> Path:
    """A module `name` with VERSION, further files, and a program `script` that prints the module's path."""
    directory.mkdir(mode=0o755, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    module = f"VERSION = {version!r}\n\ndef main():\n    print(__file__)\n"
    content = {f"{name}.py": module, **files}
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if script:
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in content.items())
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in content.items():
            wheel.writestr(member, text)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
