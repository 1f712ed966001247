"""Owns the command `berth`: its group of commands, and how errors become a line and an exit code.

It does not own the commands; each is in a module of its own.

Exit codes: 0 done; 1 it failed; 2 the input is wrong, or the cluster cannot be reached or does not allow it.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click

from berth_core.errors import BerthError, InputError
from berth_descheduler.plan_command import plan_command
from berth_descheduler.snapshot_command import snapshot_command
from berth_kube.errors import ForbiddenError, UnauthorizedError, UnreachableError

FAILED: Final = 1
WRONG_INPUT: Final = 2
INTERRUPTED: Final = 130

_TO_BE_MENDED: Final = (InputError, UnreachableError, ForbiddenError, UnauthorizedError)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="berth", prog_name="berth")
def berth() -> None:
    """Free the nodes of a fragmented cluster without losing a pod on the way."""


berth.add_command(plan_command)
berth.add_command(snapshot_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become one line on standard error."""
    try:
        result = berth.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BerthError as error:
        click.echo(f"berth: {error}", err=True)
        return WRONG_INPUT if isinstance(error, _TO_BE_MENDED) else FAILED
    return result if isinstance(result, int) else 0
