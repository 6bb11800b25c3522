"""`turnout serve`: loads the settings and runs the service."""

import msgspec

from turnout import config


class Options(msgspec.Struct):
    """None where an option is not given."""

    host: str | None = None
    port: int | None = None
    data: str | None = None
    config: str | None = None
    no_auth: bool = False


def plain_options(words: list[str]) -> Options | None:
    """The options of a plain `serve`. None for help, for a mistake and for other commands: Typer reads these."""
    if words[:1] != ["serve"]:
        return None
    given: dict[str, str | bool] = {}
    rest = iter(words[1:])
    for word in rest:
        name, has_value, value = word.partition("=")
        if word == "--no-auth":
            given["no_auth"] = True
        elif name in ("--host", "--port", "--data", "--config"):
            given[name[2:]] = value if has_value else next(rest, "--")
        else:
            return None
    port = str(given.get("port", 0))
    if not (port.isascii() and port.isdecimal()) or any(
        str(value).startswith("--") for value in given.values()
    ):
        return None
    options = msgspec.convert(given, Options, strict=False)
    return options if (options.port or 0) <= 65535 else None


def serve(options: Options) -> None:
    """Returns when the service has stopped."""
    server = {"host": options.host, "port": options.port, "data": options.data}
    settings = config.load(options.config, {"server": server, "no_auth": options.no_auth or None})
    from turnout import app  # after the settings, so that a wrong one is reported at once

    app.serve(settings)
