"""Commands whose help, version and completion go to the program's own output, whatever libraries print."""

import os
import sys
from collections.abc import Callable, MutableMapping
from importlib.metadata import version
from typing import Any, ClassVar, TypeVar

import click
from click.shell_completion import get_completion_class

from berth_core import printable_line
from berth_service.standard_output import own_output

F = TypeVar("F", bound=Callable[..., Any])


def write_line(text: str, *, end: str = "\n") -> None:
    """Write text to the program's own output, without colours where that is no terminal."""
    click.echo(text + end, file=own_output(), nl=False)


def write_notice(line: str) -> None:
    """Write a line for people to standard error; standard output is for the result."""
    click.echo(printable_line(line), err=True)


class OwnCommand(click.Command):
    """A command that writes its help and completion to the program's own output."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option for the help, with a callback that writes to the program's own output."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, Any], prog_name: str, complete_var: str | None = None
    ) -> None:
        """Answer a shell's request for completions and end the process; return if there is no such request.

        click would write the answer to `sys.stdout`.
        """
        name = "_".join(prog_name.replace("-", " ").replace(".", " ").split())
        variable = complete_var or f"_{name}_COMPLETE".upper()
        instruction = os.environ.get(variable)
        if not instruction:
            return
        shell, _, action = instruction.partition("_")
        completion = get_completion_class(shell)
        if completion is None or action not in {"source", "complete"}:
            sys.exit(1)
        completer = completion(self, ctx_args, prog_name, variable)
        if action == "source":
            write_line(completer.source(), end="")
        else:
            write_line(completer.complete())
        sys.exit(0)


class OwnGroup(OwnCommand, click.Group):
    """A group of such commands."""

    command_class: ClassVar[type[click.Command]] = OwnCommand  # type: ignore[misc]


def version_option(package: str, program: str) -> Callable[[F], F]:
    """Return a decorator that adds `--version`."""

    def show_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        if value and not context.resilient_parsing:
            write_line(f"{program}, version {version(package)}")
            context.exit()

    text = "Show the version and exit."
    return click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help=text)


def _show_help(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not context.resilient_parsing:
        write_line(context.get_help())
        context.exit()
