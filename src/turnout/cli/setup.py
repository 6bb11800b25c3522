"""Writes the settings file and the systemd unit of a service."""

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import typer

from turnout import config
from turnout.errors import Invalid, Misconfigured

LISTEN = "127.0.0.1:8470"
TLS = "none"
FRAMEWORKS = "none"
_PLAIN = re.compile(r"[\w/.+@:%$-]+")
"""What systemd reads as one word without quotes."""
_PROXIES = '["127.0.0.1", "::1"]'
_SETTINGS = """\
# The settings of Turnout, written by `turnout setup`. docs/settings.md has all of them.

[server]
host = {host}
port = {port}
data = {data}
"""
_UNIT = """\
# Written by `turnout setup`.

[Unit]
Description=Turnout, a training-job service
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart={program} serve --config {settings}
Restart=on-failure
RestartSec=1
# Jobs go on while the service is stopped, restarted or upgraded: only the service itself gets the signal.
KillMode=process
# A job that the kernel ends for its memory must not end the service.
OOMPolicy=continue
TasksMax=infinity
Delegate=yes

[Install]
WantedBy={target}
"""


class Answers(NamedTuple):
    """Empty: not given."""

    listen: str
    data: str
    tls: str
    frameworks: str = ""


class Files(NamedTuple):
    settings: Path
    unit: Path

    @classmethod
    def of(cls, settings: str, unit: str) -> "Files":
        """Those that are not given are the usual ones of this user."""
        if os.geteuid() == 0:
            usual = cls(Path("/etc/turnout/turnout.toml"), Path("/etc/systemd/system/turnout.service"))
        else:
            home = config.config_home()
            usual = cls(home / "turnout.toml", home.parent / "systemd" / "user" / "turnout.service")
        given = [Path(text).expanduser().absolute() if text else None for text in (settings, unit)]
        return cls(given[0] or usual.settings, given[1] or usual.unit)


def setup(answers: Answers, files: Files, *, dry_run: bool, yes: bool, overwrite: bool) -> None:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not (terminal or yes or dry_run or all(answers)):
        raise Invalid("there is no terminal to ask on: --yes takes the defaults, --dry-run shows the files")
    asks = terminal and not yes
    answers = _complete(answers, asks)
    contents = {files.settings: _settings(answers), files.unit: _unit(files)}
    _check(contents[files.settings])
    for path, content in contents.items():
        print(f"--- {path}{_note(path, content)}\n{content}")
    _warn(answers)
    if dry_run:
        return
    writing = {
        path: content for path, content in contents.items() if _may_write(path, content, asks, overwrite)
    }
    for path, content in writing.items():
        _write(path, content, 0o600 if path == files.settings else 0o644)
        print(f"wrote {path}")
    _show_next(files, answers)


def _complete(answers: Answers, asks: bool) -> Answers:
    def ask(given: str, question: str, default: str, check: Callable[[str], object]) -> str:
        while True:
            answer = given or (typer.prompt(question, default=default) if asks else default)
            try:
                check(answer)
            except Invalid as error:
                if given or not asks:
                    raise
                print(error.message)
            else:
                return answer

    usual = str(config.Settings().data)
    tls = "TLS: none, proxy (a reverse proxy on this machine has the certificate), or cert.pem,key.pem"
    frameworks = "Frameworks of preset images: install (from PyPI, when a job first asks for one), or none"
    return Answers(
        ask(answers.listen, "Address and port to listen on", LISTEN, _address),
        ask(answers.data, "Data directory", usual, _data),
        ask(answers.tls, tls, TLS, _tls),
        ask(answers.frameworks, frameworks, FRAMEWORKS, _frameworks),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Invalid(f"--listen must be an address and a port, such as {LISTEN}, not {text!r}")
    return host.strip("[]"), int(port)


def _data(text: str) -> None:
    if not Path(text).expanduser().is_absolute():
        raise Invalid(f"--data must be an absolute path, not {text!r}")


def _tls(text: str) -> tuple[str, str] | None:
    """The files of the certificate and its key, if the service itself has them."""
    if text in ("none", "proxy"):
        return None
    cert, comma, key = text.partition(",")
    if not (cert and comma and key):
        raise Invalid(f"--tls must be none, proxy, or the files of a certificate and its key, not {text!r}")
    for name in (cert, key):
        if not Path(name).expanduser().is_file():
            raise Invalid(f"--tls: there is no file {name}")
    return tuple(str(Path(name).expanduser().absolute()) for name in (cert, key))  # type: ignore[return-value]


def _frameworks(text: str) -> None:
    if text not in ("install", "none"):
        raise Invalid(f"--frameworks must be install or none, not {text!r}")


def _settings(answers: Answers) -> str:
    host, port = _address(answers.listen)
    data = str(Path(answers.data).expanduser())
    text = _SETTINGS.format(host=_quoted(host), port=port, data=_quoted(data))
    if answers.tls == "proxy":
        text += f"trusted_proxies = {_PROXIES}\n"
    if files := _tls(answers.tls):
        text += f"\n[tls]\ncert = {_quoted(files[0])}\nkey = {_quoted(files[1])}\n"
    if answers.frameworks == "install":
        text += "\n[runtimes]\nmake = true\n"
    return text


def _unit(files: Files) -> str:
    # Not resolved: in a virtual environment, Python is a link.
    program = Path(sys.executable).absolute().with_name("turnout")
    target = "multi-user.target" if os.geteuid() == 0 else "default.target"
    return _UNIT.format(program=_escaped(program), settings=_escaped(files.settings), target=target)


def _escaped(path: Path) -> str:
    """One word of a unit's command line. Raises Invalid for a character that would end its line."""
    _check_printable(str(path))
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def _quoted(text: str) -> str:
    """A string of TOML."""
    _check_printable(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _check_printable(text: str) -> None:
    """Raises Invalid."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise Invalid(f"{text!r} has a control character")


def _check(settings: str) -> None:
    """Reads the settings as the service will. Raises Misconfigured."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(settings)
        file.flush()
        config.load(file.name)


def _note(path: Path, content: str) -> str:
    if not path.exists():
        return ""
    return " (is already so)" if _read(path) == content else " (replaces the file that is there)"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None


def _warn(answers: Answers) -> None:
    host, _ = _address(answers.listen)
    if answers.tls == "none" and not config.Settings(server=config.ServerSettings(host=host)).loopback:
        print(
            "Other machines reach this address without TLS: everybody on the way can read what your jobs print and\n"
            "store. Use --tls with a certificate, or --listen 127.0.0.1:8470 behind a reverse proxy.\n"
        )


def _may_write(path: Path, content: str, asks: bool, overwrite: bool) -> bool:
    if not path.exists() or overwrite:
        return True
    if _read(path) == content:
        return False
    if not asks:
        raise Invalid(f"{path} exists and differs: nothing is written; --overwrite replaces it")
    return typer.confirm(f"{path} exists and differs. Replace it?", default=False)


def _write(path: Path, content: str, mode: int) -> None:
    """Atomically, so that no reader sees half of it, and never with wider rights than `mode`."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
        with open(handle, "w") as file:
            file.write(content)
        os.chmod(draft, mode)
        os.replace(draft, path)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written: {error.strerror}") from None


def _show_next(files: Files, answers: Answers) -> None:
    systemctl = "systemctl" if os.geteuid() == 0 else "systemctl --user"
    data = Path(answers.data).expanduser()
    print(f"\nNext:\n  turnout doctor --config {files.settings}")
    print(f"  {systemctl} daemon-reload\n  {systemctl} enable --now {files.unit.stem}")
    if os.geteuid() != 0:
        print("  loginctl enable-linger     # the service goes on when you log out")
    print(f"The first start creates the root key in {data / 'root-key'}.")
