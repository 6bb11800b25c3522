"""What a pool runs: a container's command line in place of its image, or Python packages."""

from typing import NamedTuple

from turnout.config import runtime_table
from turnout.dialects.vertex import catalogue, package
from turnout.dialects.vertex.errors import FAILED_PRECONDITION
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.spelling import At, shown
from turnout.dialects.vertex.wire import ContainerSpec, PythonPackageSpec
from turnout.errors import Invalid
from turnout.job import Program


class Image(NamedTuple):
    """What stands for an image here."""

    runtime: str = ""
    wants: str = ""
    known: bool = False
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


def find_image(uri: str, place: Place) -> Image:
    """By its whole name, then without tag or digest: what the settings say, else what is known of Google's own."""
    prebuilt = catalogue.prebuilt(uri)
    mapped = (place.images[name] for name in _names(uri) if name in place.images)
    runtime = next(mapped, prebuilt.runtime if prebuilt else None)
    if runtime is None:
        return Image()
    settings = place.runtimes.get(runtime)
    entrypoint, cmd = (tuple(settings.entrypoint), tuple(settings.cmd)) if settings else ((), ())
    return Image(runtime, prebuilt.wants if prebuilt else "", True, entrypoint, cmd)


def of_container(spec: ContainerSpec, place: Place, at: At, notes: dict[str, None]) -> Program:
    """As Docker and Kubernetes have it: a command replaces the image's entry point and drops its arguments."""
    image = find_image(spec.image_uri, place)
    command, args = tuple(spec.command), tuple(spec.args)
    if not command:
        if not (image.entrypoint or image.cmd):
            raise _no_entry_point(spec.image_uri, image, at / "imageUri")
        command, args = image.entrypoint, args or image.cmd
    elif not image.known:
        notes[f"{spec.image_uri} is not pulled: its command runs on this machine"] = None
    return Program(command=command, args=args, runtime=image.runtime, wants=image.wants)


def of_package(
    spec: PythonPackageSpec, where: dict[str, str], place: Place, notes: dict[str, None]
) -> Program:
    """`where` has the directory of each package."""
    image = find_image(spec.executor_image_uri, place)
    if not image.known:
        notes[f"{spec.executor_image_uri} is not pulled: the module runs on this machine's Python"] = None
    files = [f"{where[uri]}/{uri.rpartition('/')[2]}" for uri in spec.package_uris]
    command = package.command(files, spec.python_module, spec.args)
    return Program(command=command, runtime=image.runtime, wants=image.wants)


def _names(uri: str) -> list[str]:
    bare = uri.partition("@")[0]
    head, slash, last = bare.rpartition("/")
    return [uri, bare, head + slash + last.partition(":")[0]]


def _no_entry_point(uri: str, image: Image, at: At) -> Invalid:
    runtime = image.runtime or "my-runtime"
    mapped = (
        f"its runtime {runtime} has none in the settings" if image.known else "images are not pulled here"
    )
    error = at.wrong(
        f"what {shown(uri)} runs by itself is not known: {mapped}. Give command, or say it in the settings: "
        f'[images] "{_names(uri)[-1][:100]}" = "{runtime}" and {runtime_table(runtime)} '
        'entrypoint = ["python", "/app/train.py"].'
    )
    error.code = FAILED_PRECONDITION
    return error
