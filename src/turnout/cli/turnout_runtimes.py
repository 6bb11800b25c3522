"""`turnout runtime`: lists the runtimes of the machine, makes their environments and checks them."""

from typing import Annotated

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, Output

Name = Annotated[str, typer.Argument(metavar="RUNTIME")]

app = help.group("List runtimes, make their environments and check them; needs the root key.")


@help.command(app, "ls", "turnout runtime ls --output json")
def list_runtimes(endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """List the runtimes of the settings, and the presets that jobs have asked for since the service started."""
    from turnout.cli import table
    from turnout.cli.login import connect

    found = connect(endpoint).get("runtimes")["runtimes"]
    if output.is_document:
        return table.show_document(found, output)
    rows = [
        [
            one["name"] + (" (default)" if one["default"] else ""),
            one["state"],
            one["python"],
            ", ".join(one["packages"]) or one["path"],
            f"{one['size'] / 1e6:.0f} MB" if one["size"] else "",
            table.clock(one["used"]) if one["used"] else "",
        ]
        for one in found
    ]
    table.show_wrapped(
        ["RUNTIME", "STATE", "PYTHON", "PACKAGES", "SIZE", "USED"], rows, whole=output is Form.WIDE
    )
    for one in found:
        if one["why"]:
            print()
            for line in table.paragraph(f"{one['name']}: {one['why']}"):
                print(line)
    return None


@help.command(app, "make", "turnout runtime make torch")
def make(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Make the environment of a runtime now, so that no job waits for it. Tries again if it failed before."""
    from turnout.cli import table
    from turnout.cli.login import connect

    client = connect(endpoint)
    lines: list[str] = []
    for progress in client.make_runtime(name):
        lines.append(progress["line"])
        if not output.is_document:
            print(progress["line"], flush=True)
    if output.is_document:
        table.show_document(lines, output)
    elif not lines:
        print(f"the environment of the runtime {name} is ready")


@help.command(app, "check", "turnout runtime check torch")
def check(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Check a runtime: its interpreter, uv, and whether its packages can be found. Installs nothing."""
    from turnout.cli import table
    from turnout.cli.login import connect

    results: list[dict[str, object]] = []
    for result in connect(endpoint).check_runtime(name):
        results.append(result)
        if not output.is_document:
            print(
                f"{'ok    ' if result['ok'] else 'failed'}  {result['what']}: {result['detail']}", flush=True
            )
    if output.is_document:
        table.show_document(results, output)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)
