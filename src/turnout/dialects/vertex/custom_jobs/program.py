"""The program of a worker pool: the command line of a container, or Python packages."""

from typing import NamedTuple

from turnout.config import runtime_table
from turnout.dialects.vertex import catalogue
from turnout.dialects.vertex.custom_jobs import package_command
from turnout.dialects.vertex.errors import FAILED_PRECONDITION
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.wire import ContainerSpec, PythonPackageSpec
from turnout.errors import Invalid
from turnout.job import Program


class Image(NamedTuple):
    """The runtime that replaces an image."""

    runtime: str = ""
    wants: str = ""
    known: bool = False
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


def find_image(uri: str, installation: Installation) -> Image:
    """Looks the image up in the settings by its full name, then without digest and tag; then among Google's images."""
    prebuilt = catalogue.prebuilt(uri)
    mapped = (installation.images[name] for name in _lookup_names(uri) if name in installation.images)
    runtime = next(mapped, prebuilt.runtime if prebuilt else None)
    if runtime is None:
        return Image()
    settings = installation.runtimes.get(runtime)
    entrypoint, cmd = (tuple(settings.entrypoint), tuple(settings.cmd)) if settings else ((), ())
    return Image(runtime, prebuilt.wants if prebuilt else "", True, entrypoint, cmd)


def container_program(
    spec: ContainerSpec, installation: Installation, path: FieldPath, notes: dict[str, None]
) -> Program:
    """As in Docker and Kubernetes, a command replaces the entry point and the default arguments of the image."""
    image = find_image(spec.image_uri, installation)
    command, args = tuple(spec.command), tuple(spec.args)
    if not command:
        if not (image.entrypoint or image.cmd):
            raise _no_entry_point(spec.image_uri, image, path / "imageUri")
        command, args = image.entrypoint, args or image.cmd
    elif not image.known:
        notes[f"{spec.image_uri} is not pulled: its command runs on this machine"] = None
    return Program(command=command, args=args, runtime=image.runtime, wants=image.wants)


def package_program(
    spec: PythonPackageSpec, directories: dict[str, str], installation: Installation, notes: dict[str, None]
) -> Program:
    """`directories`: the directory of each package by its URI."""
    image = find_image(spec.executor_image_uri, installation)
    if not image.known:
        notes[f"{spec.executor_image_uri} is not pulled: the module runs on this machine's Python"] = None
    files = [f"{directories[uri]}/{uri.rpartition('/')[2]}" for uri in spec.package_uris]
    command = package_command.command(files, spec.python_module, spec.args)
    return Program(command=command, runtime=image.runtime, wants=image.wants)


def _lookup_names(uri: str) -> list[str]:
    bare = uri.partition("@")[0]
    head, slash, last = bare.rpartition("/")
    return [uri, bare, head + slash + last.partition(":")[0]]


def _no_entry_point(uri: str, image: Image, path: FieldPath) -> Invalid:
    runtime = image.runtime or "my-runtime"
    mapped = (
        f"its runtime {runtime} has none in the settings"
        if image.known
        else "this service does not pull images"
    )
    error = path.invalid(
        f"the entry point of {quoted(uri)} is not known: {mapped}. Set command, or declare it in the settings: "
        f'[images] "{_lookup_names(uri)[-1][:100]}" = "{runtime}" and {runtime_table(runtime)} '
        'entrypoint = ["python", "/app/train.py"].'
    )
    error.code = FAILED_PRECONDITION
    return error
