"""Help in the layout of the original tictl: USAGE, DESCRIPTION, COMMANDS, OPTIONS, and EXAMPLES below."""

import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from turnout.cli.language import say
from turnout.errors import Unsupported

INDENT = "   "


class HelpCommand(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(render(self, ctx))


class HelpGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`help job create` is `job create --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(render(self, ctx))


def group(description: str, version: str = "") -> typer.Typer:
    """A command with subcommands. Without one it shows its help. `version` is what --version prints."""
    app = typer.Typer(
        cls=HelpGroup,
        help=description,
        add_completion=bool(version),
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            print(version)
            raise typer.Exit

    def with_version(
        ctx: typer.Context,
        _: bool = typer.Option(
            False, "--version", help="show the version", callback=show_version, is_eager=True
        ),
    ) -> None:
        alone(ctx)

    def alone(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    app.callback(invoke_without_command=True)(with_version if version else alone)
    return app


def command(
    app: typer.Typer, name: str, examples: str = "", **settings: Any
) -> Callable[[Callable], Callable]:
    """Registers a function; its docstring becomes DESCRIPTION."""
    return app.command(
        name,
        cls=HelpCommand,
        epilog=textwrap.dedent(examples).strip(),
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def refusal(app: typer.Typer, name: str, message: str) -> None:
    """A command of the original tictl that is not supported. It accepts any arguments and fails with `message`."""

    def refuse(ctx: typer.Context) -> None:
        raise Unsupported(message)

    taking_anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, hidden=True, add_help_option=False, context_settings=taking_anything)(refuse)


def render(command: TyperCommand | TyperGroup, ctx: Any) -> str:
    parts = [_section("USAGE", [_usage(command, ctx)])]
    if command.help:
        parts.append(_section("DESCRIPTION", _wrapped(say(command.help))))
    if isinstance(command, TyperGroup):
        known = [(name, _short(c)) for name, c in command.commands.items() if not c.hidden]
        parts.append(_section("COMMANDS", _columns(known)))
    options = [p for p in command.get_params(ctx) if isinstance(p, TyperOption) and not p.hidden]
    parts.append(_section("OPTIONS", _columns([(_flags(p), _meaning(p)) for p in options])))
    if command.epilog:
        parts.append(_section("EXAMPLES", command.epilog.splitlines()))
    return "\n".join(parts)


def _short(command: Any) -> str:
    """The first sentence of the description."""
    translated = say(command.help or "")
    return translated if translated != command.help else command.get_short_help_str(200)


def _section(title: str, lines: list[str]) -> str:
    return "".join([f"{say(title)}:\n", *(f"{INDENT}{line}".rstrip() + "\n" for line in lines)])


def _usage(command: TyperCommand | TyperGroup, ctx: Any) -> str:
    if isinstance(command, TyperGroup):
        return f"{ctx.command_path} command [command options] [arguments...]"
    arguments = [p.make_metavar(ctx) for p in command.get_params(ctx) if not isinstance(p, TyperOption)]
    return " ".join([ctx.command_path, "[options]", *arguments])


def _flags(option: TyperOption) -> str:
    names = sorted(option.opts + option.secondary_opts, key=len)
    value = "" if option.is_flag or option.count or option.name == "help" else f" {option.metavar or 'value'}"
    return ", ".join(f"{name}{value}" for name in names)


def _meaning(option: TyperOption) -> str:
    text, default = say(option.help or ""), say("default")
    shown = (
        option.default
        if option.show_default and not option.is_flag and not callable(option.default)
        else None
    )
    if shown in (None, "", [], ()):
        return text
    return f'{text} ({default}: "{shown}")' if isinstance(shown, str) else f"{text} ({default}: {shown})"


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(left) for left, _ in rows), default=0) + 2
    room = max(_width() - width, 24)
    return list(_beside(rows, width, room))


def _beside(rows: list[tuple[str, str]], width: int, room: int) -> Iterator[str]:
    for left, right in rows:
        first, *rest = textwrap.wrap(right, room, break_on_hyphens=False) or [""]
        yield f"{left:<{width}}{first}"
        yield from (" " * width + line for line in rest)


def _wrapped(text: str) -> list[str]:
    paragraphs = (textwrap.wrap(line, _width(), break_on_hyphens=False) or [""] for line in text.splitlines())
    return [line for paragraph in paragraphs for line in paragraph]


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 120) - len(INDENT) - 1
