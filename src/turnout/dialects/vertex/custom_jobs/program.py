"""The program of a worker pool: the command line of a container, or Python packages."""

from typing import NamedTuple

import msgspec

from turnout.dialects.vertex import catalogue
from turnout.dialects.vertex.custom_jobs import package_command
from turnout.dialects.vertex.errors import FAILED_PRECONDITION
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf.field_path import FieldPath, quoted
from turnout.dialects.vertex.wire import ContainerSpec, PythonPackageSpec
from turnout.errors import Invalid, Unsupported
from turnout.job import Program
from turnout.runtimes import runtime_table


class ForJob(NamedTuple):
    """What the program of a pool depends on besides its own fields."""

    installation: Installation
    cluster: str
    notes: dict[str, None]


def container_program(spec: ContainerSpec, job: ForJob, path: FieldPath) -> Program:
    """As in Docker and Kubernetes, a command replaces the entry point and the default arguments of the image."""
    program = _settled(
        Program(tuple(spec.command), tuple(spec.args), image=spec.image_uri), job, path / "imageUri"
    )
    if program.command or program.root:
        return program
    settings = job.installation.runtimes.get(program.runtime)
    if settings is None or not (settings.entrypoint or settings.cmd):
        raise _no_entry_point(program, path / "imageUri")
    args = program.args or tuple(settings.cmd)
    return msgspec.structs.replace(program, command=tuple(settings.entrypoint), args=args)


def package_program(
    spec: PythonPackageSpec, directories: dict[str, str], job: ForJob, path: FieldPath
) -> Program:
    """`directories`: the directory of each package by its URI."""
    files = [f"{directories[uri]}/{uri.rpartition('/')[2]}" for uri in spec.package_uris]
    command = package_command.command(files, spec.python_module, spec.args)
    return _settled(Program(command, image=spec.executor_image_uri), job, path / "executorImageUri")


def _settled(program: Program, job: ForJob, path: FieldPath) -> Program:
    installation = job.installation
    prebuilt = catalogue.prebuilt(program.image)
    preset = prebuilt.runtime if prebuilt else ""
    program = msgspec.structs.replace(program, wants=prebuilt.wants if prebuilt else "")
    try:
        return installation.rules.settle(program, installation.project, job.cluster, job.notes, preset)
    except (Invalid, Unsupported) as error:
        refused = path.invalid(f"{error.message}.")
        refused.code = FAILED_PRECONDITION
        raise refused from None


def _lookup_names(uri: str) -> list[str]:
    bare = uri.partition("@")[0]
    head, slash, last = bare.rpartition("/")
    return [uri, bare, head + slash + last.partition(":")[0]]


def _no_entry_point(program: Program, path: FieldPath) -> Invalid:
    uri, runtime = program.image, program.runtime or "my-runtime"
    mapped = (
        f"its runtime {runtime} has none in the settings"
        if program.runtime
        else "the image itself is not used"
    )
    error = path.invalid(
        f"the entry point of {quoted(uri)} is not known: {mapped}. Set command; or bring the image with "
        f"`turnout image pull {uri[:200]}`; or declare it in the settings: "
        f'[images] "{_lookup_names(uri)[-1][:100]}" = "{runtime}" and {runtime_table(runtime)} '
        'entrypoint = ["python", "/app/train.py"].'
    )
    error.code = FAILED_PRECONDITION
    return error
