"""Completion of `kubectl berth`, whose plugin kubectl asks for it."""

import sys
from collections.abc import Sequence
from typing import Final

from click.shell_completion import ShellComplete

from berth_core import printable_text
from berth_descheduler.cli.main import berth
from berth_service.command_line import write_line

_FILE_NAMES: Final = 0
_NO_FILE_NAMES: Final = 4
"""The last line of an answer to kubectl: a directive of cobra's completion, here whether the shell adds file names."""


def complete_for_kubectl(arguments: Sequence[str] | None = None) -> None:
    """Print what `kubectl` offers after `kubectl berth …`; the last argument is the incomplete word.

    kubectl runs `kubectl_complete-berth` on the PATH for this (KEP-2379, kubernetes/kubernetes#105867).
    """
    *words, incomplete = sys.argv[1:] if arguments is None else arguments
    completions = ShellComplete(berth, {}, "kubectl berth", "").get_completions(words, incomplete)
    for completion_item in (completion for completion in completions if completion.type == "plain"):
        write_line(
            printable_text(
                f"{completion_item.value}\t{completion_item.help}" if completion_item.help else completion_item.value
            )
        )
    write_line(f":{_FILE_NAMES if any(offered.type == 'file' for offered in completions) else _NO_FILE_NAMES}")
