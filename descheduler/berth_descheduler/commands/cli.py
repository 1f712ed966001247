"""Owns the command `berth`: its group of commands, and how errors become a line and an exit code.

It does not own the commands; each is in a module of its own.

Exit codes: 0 done; 1 it failed: a pod did not land where it was to, a plan is in the wrong state, `berth doctor` found
something, or it was not over in time; 2 the input is wrong, or the cluster cannot be reached or does not allow it; 130
it was interrupted.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from berth_core.errors import BerthError, InputError
from berth_core.printable import printable_line

INTERRUPTED: Final = 130

_KUBECTL_PLUGIN: Final = "kubectl-berth"

_COMMANDS: Final = {
    "abort": "plan_commands:abort_command",
    "approve": "plan_commands:approve_command",
    "demo": "demo_command:demo_command",
    "doctor": "doctor_command:doctor_command",
    "fragmentation": "fragmentation_command:fragmentation_command",
    "plan": "plan_command:plan_command",
    "plans": "plan_commands:plans_command",
    "policies": "policies_command:policies_command",
    "policy": "policy_command:policy_command",
    "run": "run_command:run_command",
    "sandbox": "sandbox_commands:sandbox",
    "show": "plan_commands:show_command",
    "snapshot": "snapshot_command:snapshot_command",
    "top": "top_command:top_command",
}
"""Name to `module:attribute`, imported when used: `berth plan` needs none of what the sandbox needs."""


_EPILOG: Final = """\b
Exit codes:
  0    done
  1    it failed: a pod did not land where it was to, a plan is in the wrong state,
       something was found (doctor), or it was not over in time
  2    the input is wrong, or the cluster cannot be reached or does not allow it
  130  interrupted

\b
Completion, also of the names of plans and policies:
  bash: eval "$(_BERTH_COMPLETE=bash_source berth)"       in ~/.bashrc
  zsh:  eval "$(_BERTH_COMPLETE=zsh_source berth)"        in ~/.zshrc
  fish: _BERTH_COMPLETE=fish_source berth | source        in ~/.config/fish/config.fish
  kubectl berth: nothing to do where kubectl itself is completed

Colours and moving pictures are for terminals only; NO_COLOR takes the colours away.
"""


class LazyCommands(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Return a command, None where there is none; without its extra one that says what to install."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        try:
            found: click.Command = getattr(import_module(f"berth_descheduler.commands.{module}"), attribute)
        except ModuleNotFoundError as error:
            return _not_installed(cmd_name, error)
        return found


def _not_installed(name: str, missing: ModuleNotFoundError) -> click.Command:
    """Return a command that says which extra brings what is missing."""

    def refuse(**_: object) -> None:
        raise InputError("installation", missing.name, f"pip install 'berth[demo]', which `berth {name}` needs")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help="Needs pip install 'berth[demo]'.", context_settings=settings)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=_EPILOG,
)
@click.version_option(package_name="berth", prog_name="berth")
def berth() -> None:
    """Free the nodes of a fragmented cluster without losing a pod on the way.

    `kubectl berth` is the same program.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become one line on standard error."""
    given = None if arguments is None else list(arguments)
    try:
        result = berth.main(args=given, prog_name=_program_name(), standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BerthError as error:
        click.echo(f"berth: {printable_line(str(error))}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0


def _program_name() -> str | None:
    """Return how the program was called where that is not by its own name; None: click finds it out."""
    return "kubectl berth" if Path(sys.argv[0]).name.startswith(_KUBECTL_PLUGIN) else None
