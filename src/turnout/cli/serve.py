"""`turnout serve`: loads the settings and runs the service."""

from turnout import config


def serve(host: str | None, port: int | None, data: str | None, file: str | None, no_auth: bool) -> None:
    """Returns when the service has stopped."""
    flags = {"server": {"host": host, "port": port, "data": data}, "no_auth": no_auth or None}
    settings = config.load(file, flags)
    from turnout import app  # after the settings, so that a wrong one is reported at once

    app.serve(settings)
