"""`make demo`: starts a service, runs a job of four processes, shows its logs and its state, and removes everything."""

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

PROGRAM = Path(__file__).with_name("mnist_saved_model.py")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with directory() as here, service(here / "data") as environment:
        package = here / "package"
        package.mkdir()
        # If the service runs as root, jobs run as another user, and the master saves a file here.
        package.chmod(0o777)
        shutil.copy(PROGRAM, package)

        title("The example of TI-A's documentation: one master, one parameter server, two workers")
        tictl = Commands(environment)
        tictl.run(
            "tictl job create test-job --cluster=ap-beijing --runtime=tia-1.7.0 --scaletier=CUSTOM"
            " --mastertype=1U1G0P --workertype=1U1G0P --pstype=1U1G0P --wcount=2 --pscount=1"
            f" --packagedir=file://{package}:/data --command=python --args=mnist_saved_model.py"
        )
        title("The log of all four processes, until the job ends")
        tictl.run("tictl logs test-job --follow")
        title("The result")
        tictl.run("tictl job describe test-job")
        tictl.run("turnout explain test-job")
        state = json.loads(tictl.read("tictl job describe test-job --output=json"))[0]["State"]
        model = json.loads((package / "saved_model.json").read_text()) if state == "Succeeded" else {}
        tictl.run("tictl job delete test-job")
    if not model:
        sys.exit(f"demo: the job is {state}, not Succeeded")
    title(f"Done: the job succeeded, and its model has an accuracy of {model['accuracy']:.1%}")


class Commands:
    """Prints command lines and runs them."""

    def __init__(self, environment):
        self._environment = environment

    def run(self, line):
        print(paint(f"$ {line}", "1"), flush=True)
        if subprocess.run(program(line), env=self._environment, check=False).returncode != 0:
            sys.exit("demo: stopped, because this command failed")

    def read(self, line):
        return subprocess.run(program(line), env=self._environment, check=True, capture_output=True).stdout


@contextlib.contextmanager
def directory():
    """A directory that other users can enter, so that the job's user reaches the files in it."""
    path = Path(tempfile.mkdtemp(prefix="turnout-demo-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextlib.contextmanager
def service(data):
    """A running service. Yields the environment that its clients need."""
    key = f"demo:{secrets.token_hex(16)}"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    command = f"turnout serve --port {port} --data {data}"
    print(paint(f"$ {command}", "1"), flush=True)
    process = subprocess.Popen(
        program(command), env=clean | {"TURNOUT_ROOT_KEY": key}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        if not process.stdout.readline():
            sys.exit(f"demo: the service did not start (exit code {process.wait()})")
        print(f"listens on http://127.0.0.1:{port}")
        yield clean | {
            "TURNOUT_ENDPOINT": f"http://127.0.0.1:{port}",
            "TURNOUT_KEY": key,
            "XDG_CONFIG_HOME": str(data.parent / "config"),
        }
    finally:
        process.terminate()
        process.wait()
        end_what_is_left(data)


def end_what_is_left(data):
    """The supervisor ends by itself when it has no jobs and no service. Kills it if it does not."""
    left = [p for p in psutil.process_iter() if str(data) in " ".join(arguments(p))]
    for process in psutil.wait_procs(left, timeout=5)[1]:
        process.kill()
        process.wait(5)


def arguments(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def program(line):
    """The command in this Python environment, whether it is installed or not."""
    name, *words = shlex.split(line)
    module = {"turnout": "turnout.cli.main", "tictl": "turnout.cli.tictl"}[name]
    return [sys.executable, "-m", module, *words]


def title(text):
    print(f"\n{paint(text, '1;36')}", flush=True)


def paint(text, colour):
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{colour}m{text}\033[0m"


if __name__ == "__main__":
    main()
