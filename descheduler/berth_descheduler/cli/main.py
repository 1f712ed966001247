"""The command `berth`: its group of commands, errors and exit codes.

Errors become a line and an exit code. Exit codes: 0 done; 1 it failed: a pod did not land where it was meant to, a
plan is in the wrong state, `berth doctor` found something, or it was not over in time; 2 the input is wrong, or the
cluster cannot be reached or does not allow it; 130 it was interrupted.
"""

import errno
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

import click

from berth_core import BerthError, printable_line
from berth_service.command_line import OwnGroup, version_option
from berth_service.extras import MissingPackagesError
from berth_service.quick_imports import quick_imports
from berth_service.standard_output import discard_output, keep_output_apart

if TYPE_CHECKING:
    from berth_descheduler.capability import CapabilityCommand


# As shells report a program that a signal has ended: 128 and the number of SIGINT.
INTERRUPTED: Final = 130
_FAILED: Final = 1
_OUTPUT_TAKES_NO_MORE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

_KUBECTL_PLUGIN: Final = "kubectl-berth"

_COMMANDS: Final = {
    "abort": "plans:abort_command",
    "approve": "plans:approve_command",
    "doctor": "doctor:doctor_command",
    "fragmentation": "fragmentation:fragmentation_command",
    "plan": "plan:plan_command",
    "plans": "plans:plans_command",
    "policies": "policies:policies_command",
    "policy": "policy:policy_command",
    "run": "run:run_command",
    "show": "plans:show_command",
    "snapshot": "snapshot:snapshot_command",
    "top": "top:top_command",
    "ui": "ui:ui_command",
    "uninstall": "uninstall:uninstall_command",
}
"""Name to `module:attribute`, imported when used: `berth plan` needs none of what the sandbox needs."""


_HEADINGS: Final = {
    "Look": ("plan", "fragmentation", "top", "doctor", "snapshot", "ui"),
    "Move pods now": ("run",),
    "Policies and plans": ("policies", "plans", "show", "approve", "abort", "policy"),
    "Try it on this machine": (),
    "Take it away": ("uninstall",),
}
"""The commands as the help lists them; those of capabilities come after them."""

_EPILOG: Final = """\b
Exit codes:
  0    done
  1    it failed: a pod did not land where it was meant to, a plan is in the wrong state,
       something was found (doctor), or it was not over in time
  2    the input is wrong, or the cluster cannot be reached or does not allow it
  130  interrupted

\b
Completion, also of names of plans, policies, nodes, namespaces and contexts:
  bash: eval "$(_BERTH_COMPLETE=bash_source berth)"       in ~/.bashrc
  zsh:  eval "$(_BERTH_COMPLETE=zsh_source berth)"        in ~/.zshrc
  fish: _BERTH_COMPLETE=fish_source berth | source        in ~/.config/fish/config.fish
  kubectl berth: nothing to do where kubectl itself is completed

Colours and moving pictures are for terminals only; NO_COLOR takes the colours away.
"""


_WHOLE_SENTENCE: Final = 1_000
"""Characters of the first sentence of a command's help that are shown; it is wrapped, not cut."""


def _of_capabilities() -> "tuple[CapabilityCommand, ...]":
    """Return the commands that capabilities bring, in the order of the registry."""
    with quick_imports():
        from berth_descheduler.registry import EVERY_CAPABILITY  # noqa: PLC0415 - with the planner, which takes a while

    return tuple(command for capability in EVERY_CAPABILITY for command in capability.commands)


def _find(name: str) -> str | None:
    """Return where a command is, as `module:attribute`, None where there is none."""
    if name in _COMMANDS:
        return f"berth_descheduler.cli.{_COMMANDS[name]}"
    return next((command.source for command in _of_capabilities() if command.name == name), None)


class LazyCommands(OwnGroup):
    """A group whose commands are imported when they are asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; where there is none, the error names those that are spelt alike."""
        alike = [] if ctx.resilient_parsing or _find(args[0]) else get_close_matches(args[0], self.list_commands(ctx))
        if alike:
            names = " or ".join(repr(name) for name in alike)
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {names}?", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted([*_COMMANDS, *(command.name for command in _of_capabilities())])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Return a command, None where there is none."""
        if (source := _find(cmd_name)) is None:
            return None
        with quick_imports():
            command: click.Command = resolve_name(source)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, a section for each heading."""
        for heading, own_names in _HEADINGS.items():
            names = (*own_names, *(command.name for command in _of_capabilities() if command.heading == heading))
            commands = ((command_name, self.get_command(ctx, command_name)) for command_name in names)
            sentences = [(name, command.get_short_help_str(_WHOLE_SENTENCE)) for name, command in commands if command]
            if sentences:
                with formatter.section(heading):
                    formatter.write_dl(sentences)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=_EPILOG,
)
@version_option("berth", "berth")
def berth() -> None:
    """Free the nodes of a fragmented cluster without losing a pod on the way.

    `kubectl berth` is the same program.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    keep_output_apart()
    try:
        code = run(arguments)
    except OSError as error:
        if error.errno not in _OUTPUT_TAKES_NO_MORE or error.filename is not None:
            raise
        discard_output()
        click.echo(f"berth: standard output cannot be written: {error.strerror}", err=True)
        code = _FAILED
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become one line on standard error."""
    argument_list = None if arguments is None else list(arguments)
    try:
        exit_code = berth.main(args=argument_list, prog_name=_program_name(), standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BerthError as error:
        click.echo(f"berth: {printable_line(str(error))}", err=True)
        return error.exit_code
    except ModuleNotFoundError as error:
        click.echo(f"berth: {MissingPackagesError.of_import('berth', error)}", err=True)
        return MissingPackagesError.exit_code
    return exit_code if isinstance(exit_code, int) else 0


def _program_name() -> str | None:
    """Return the name of the program if another one calls it; None leaves that to click."""
    return "kubectl berth" if Path(sys.argv[0]).name.startswith(_KUBECTL_PLUGIN) else None
