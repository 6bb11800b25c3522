"""How to reach the API server: a kubeconfig file, or the service account of the pod that the service runs in."""

import base64
import json
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from turnout.engines import Unreachable

_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_SECONDS = 60
_LAST_NAMESPACE = "default"


class Access(NamedTuple):
    server: SplitResult
    context: ssl.SSLContext | None
    """None: plain HTTP."""
    server_name: str
    """What the certificate must be for."""
    authorization: str
    """The header; empty: the certificate of the client says who it is."""
    namespace: str
    expires: float = float("inf")
    """When it has to be read again at the latest, in seconds since 1970."""


def read_access(path: str, context: str, environment: Mapping[str, str]) -> Access:
    """Blocks. `path` and `context` may be empty, as for kubectl. Raises Unreachable."""
    if not path and "KUBERNETES_SERVICE_HOST" in environment and "KUBECONFIG" not in environment:
        return _of_pod(environment)
    home = Path(environment.get("HOME", "/root"))
    file = Path(path or environment.get("KUBECONFIG", "").split(":")[0] or home / ".kube/config")
    import yaml  # only imported where there is a Kubernetes cluster

    try:
        config = yaml.safe_load(file.read_text())
    except OSError as error:
        raise Unreachable(f"the kubeconfig {file} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError):
        raise Unreachable(f"the kubeconfig {file} is not YAML") from None
    try:
        return _Kubeconfig(file, config, environment).access(context)
    except (KeyError, TypeError, AttributeError, ValueError, OSError, ssl.SSLError) as error:
        raise Unreachable(f"the kubeconfig {file} cannot be used: {error!r}") from None


def _of_pod(environment: Mapping[str, str]) -> Access:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    try:
        token = (_POD / "token").read_text().strip()
        namespace = (_POD / "namespace").read_text().strip()
        context = ssl.create_default_context(cafile=str(_POD / "ca.crt"))
    except OSError as error:
        raise Unreachable(f"the service account in {_POD} cannot be read: {error.strerror}") from None
    # The kubelet replaces the token long before it expires.
    soon = datetime.now().astimezone().timestamp() + 60
    return Access(urlsplit(f"https://{host}:{port}"), context, "", f"Bearer {token}", namespace, soon)


class _Kubeconfig:
    def __init__(self, file: Path, config: Any, environment: Mapping[str, str]) -> None:
        self._file = file
        self._config = config
        self._environment = environment

    def access(self, name: str) -> Access:
        name = name or self._config.get("current-context") or ""
        context = self._named("context", name)
        cluster = self._named("cluster", context["cluster"])
        user = self._named("user", context["user"]) if context.get("user") else {}
        credentials, expires = self._credentials(user)
        server = urlsplit(cluster["server"])
        tls = self._context(cluster, credentials) if server.scheme == "https" else None
        return Access(
            server,
            tls,
            cluster.get("tls-server-name") or "",
            _authorization(credentials, self._file.parent),
            context.get("namespace") or _LAST_NAMESPACE,
            expires,
        )

    def _named(self, kind: str, name: str) -> dict[str, Any]:
        for one in self._config.get(f"{kind}s") or ():
            if one["name"] == name:
                return one[kind] or {}
        known = ", ".join(one["name"] for one in self._config.get(f"{kind}s") or ()) or "none"
        raise Unreachable(f"the kubeconfig {self._file} has no {kind} {name!r}; it has {known}")

    def _credentials(self, user: dict[str, Any]) -> tuple[dict[str, Any], float]:
        if "exec" not in user:
            return user, float("inf")
        status = _run_plugin(user["exec"], self._environment)
        found = {"token": status.get("token")}
        for ours, theirs in (
            ("client-certificate-data", "clientCertificateData"),
            ("client-key-data", "clientKeyData"),
        ):
            if status.get(theirs):
                found[ours] = base64.b64encode(status[theirs].encode()).decode()
        expires = status.get("expirationTimestamp")
        return found, datetime.fromisoformat(expires).timestamp() - 60 if expires else float("inf")

    def _context(self, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
        authority = cluster.get("certificate-authority-data")
        context = ssl.create_default_context(
            cafile=self._path(cluster.get("certificate-authority")),
            cadata=base64.b64decode(authority).decode() if authority else None,
        )
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._load_certificate(context, user)
        return context

    def _load_certificate(self, context: ssl.SSLContext, user: dict[str, Any]) -> None:
        certificate, key = (self._path(user.get(name)) for name in ("client-certificate", "client-key"))
        inline = [user.get(name) for name in ("client-certificate-data", "client-key-data")]
        if all(inline):
            # The module ssl takes files only.
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"\n".join(base64.b64decode(part) for part in inline if part))
                file.flush()
                context.load_cert_chain(file.name)
        elif certificate and key:
            context.load_cert_chain(certificate, key)

    def _path(self, name: str | None) -> str | None:
        return str(self._file.parent / name) if name else None


def _authorization(user: dict[str, Any], directory: Path) -> str:
    if user.get("tokenFile"):
        return f"Bearer {(directory / user['tokenFile']).read_text().strip()}"
    if user.get("token"):
        return f"Bearer {user['token']}"
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _run_plugin(plugin: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The clouds' own commands for credentials, such as `aws eks get-token`."""
    version = plugin.get("apiVersion", "client.authentication.k8s.io/v1")
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    added = {one["name"]: one["value"] for one in plugin.get("env") or ()}
    command = [plugin["command"], *(plugin.get("args") or ())]
    try:
        done = subprocess.run(
            command,
            env={**environment, **added, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_EXEC_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(
            f"{command[0]}, which the kubeconfig runs for credentials, failed: {error}"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise Unreachable(f"{command[0]}, which the kubeconfig runs for credentials, failed: {said}")
    return json.loads(done.stdout)["status"]
