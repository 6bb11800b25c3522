"""Adds advice to the service's errors. The error itself stays as the cloud's clients see it."""

import os

from turnout.cli.client import Document, Rejected


def about_job(error: Rejected, name: str, cluster: str) -> Rejected:
    """For a call that names a job."""
    if f"no job {name}" not in error.message:
        return error
    return _with(
        error,
        f"tictl shows only TI-A jobs of a cluster, here {cluster} (-c chooses another); "
        "`turnout logs` and `turnout explain` find every job",
    )


def about_new_job(error: Rejected, fields: Document) -> Rejected:
    """For a job that was refused. `fields`: the fields of the request."""
    if error.code == "ResourceUnavailable" and "GPU" in error.message:
        return _with(
            error,
            "`turnout doctor` shows how many the machine has; a service started with TURNOUT_GPUS=<number> "
            "simulates GPUs",
        )
    if "is not a runtime" in error.message:
        return _with(error, "docs/tia.md lists them all under Runtimes")
    if "PackageDir" in error.message:
        bare = next((entry for entry in fields.get("PackageDir", []) if "://" not in entry), "")
        return _with(error, f"did you mean {_as_url(bare)}?") if bare else error
    return error


def _as_url(entry: str) -> str:
    directory, _, mount = entry.partition(":")
    return f"file://{os.path.abspath(os.path.expanduser(directory))}:{mount or '/data'}"


def _with(error: Rejected, advice: str) -> Rejected:
    return Rejected(f"{error.message}; {advice}", code=error.code)
