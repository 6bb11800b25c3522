"""The rules for the fields of a model."""

from turnout.dialects.vertex.custom_jobs import validate as jobs
from turnout.dialects.vertex.models import registry
from turnout.dialects.vertex.models.wire import Model, ModelContainerSpec
from turnout.dialects.vertex.protobuf.field_path import FieldPath

MAX_PORT = 65535


def model(message: Model, path: FieldPath, location: str) -> None:
    """Raises Invalid for the first error."""
    jobs.display_name(message.display_name, path / "displayName")
    jobs.labels(message.labels, path / "labels")
    if message.encryption_spec:
        jobs.kms_key(message.encryption_spec.kms_key_name, path / "encryptionSpec" / "kmsKeyName", location)
    registry.check_aliases(message.version_aliases, (path / "versionAliases").as_sent)
    if message.artifact_uri:
        jobs.gcs_directory(message.artifact_uri, path / "artifactUri")
    if message.container_spec:
        _container(message.container_spec, path / "containerSpec")


def _container(spec: ModelContainerSpec, path: FieldPath) -> None:
    jobs.image(spec.image_uri, path / "imageUri")
    jobs.arguments(spec.command, path / "command")
    jobs.arguments(spec.args, path / "args")
    jobs.environment(spec.env, path / "env")
    for name, ports in (("ports", spec.ports), ("grpcPorts", spec.grpc_ports)):
        for index, port in enumerate(ports):
            if not 1 <= port.container_port <= MAX_PORT:
                raise (path / name / index / "containerPort").invalid(
                    f"it must be from 1 to {MAX_PORT}, not {port.container_port}."
                )
    for name, route in (("predictRoute", spec.predict_route), ("healthRoute", spec.health_route)):
        if route and not route.startswith("/"):
            raise (path / name).invalid("it must begin with '/'.")
