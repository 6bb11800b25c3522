"""Copies the artifacts of a version to another directory of a bucket."""

from datetime import UTC, datetime

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import validate
from turnout.dialects.vertex.models import names, registry, versions
from turnout.dialects.vertex.models.render import EXPORT_FORMAT
from turnout.dialects.vertex.models.wire import ExportModelRequest
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_path import FieldPath
from turnout.errors import Unsupported, WrongState


async def export(context: Context, call: Call) -> Response:
    """The operation is done when this returns. An export that is interrupted can be made again."""
    name = names.of_call(call)
    request, path = codec.decode(call.body, ExportModelRequest, "export_model_request")
    target = _target(request, path / "outputConfig")
    stored = await versions.find(context, call.caller, name)
    version = registry.version_of(stored, name.version, name.model)
    source = version.fields.get("artifactUri", "")
    if not source:
        raise WrongState(f"The Model {name.model}@{version.id} has no artifacts to export.")
    made = datetime.fromtimestamp(context.clock() / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    directory = f"{target.rstrip('/')}/model-{name.id}/{EXPORT_FORMAT}/{made}"
    await _copy(context, call.caller.project, source.rstrip("/"), directory)
    done = await operations.finished(
        context, call, "ExportModelResponse", {}, metadata="ExportModelOperationMetadata",
        more={"outputInfo": {"artifactOutputUri": directory}},
    )  # fmt: skip
    return reply.json(done)


def _target(request: ExportModelRequest, path: FieldPath) -> str:
    """The directory that the request names. Raises Invalid or Unsupported."""
    config = request.output_config
    if config is None:
        raise path.missing()
    if config.export_format_id not in ("", EXPORT_FORMAT):
        raise (path / "exportFormatId").invalid(f"use {EXPORT_FORMAT}: a model is exported as it is.")
    if config.image_destination:
        name = (path / "imageDestination").as_sent
        raise Unsupported(f"{name} is not supported: use artifactDestination.", field=name)
    if config.artifact_destination is None:
        raise (path / "artifactDestination").missing()
    uri = config.artifact_destination.output_uri_prefix
    validate.gcs_directory(uri, path / "artifactDestination" / "outputUriPrefix")
    return uri


async def _copy(context: Context, project: str, source: str, target: str) -> None:
    after = ""
    bucket = "/".join(source.split("/", 3)[:3])
    while True:
        page = await context.objects.list(f"{source}/", project, after=after)
        for one in page.objects:
            url = f"{bucket}/{one.key}"
            if url.startswith(f"{target}/"):  # the list goes on while the copies are made
                continue
            await context.objects.copy(url, f"{target}{url.removeprefix(source)}", project)
        after = page.next
        if not after:
            return
