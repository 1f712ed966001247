"""The terminal: a console that prints names and messages from the cluster verbatim, and a status line."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from io import TextIOWrapper
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from berth_core import printable_text
from berth_service.standard_output import own_output


class Terminal(Console):
    """A console without markup, which makes control characters of texts visible.

    It writes to the program's own output, or to standard error if asked to.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:  # noqa: ANN401 - what a console takes
        file = None if stderr else own_output()
        super().__init__(**{"markup": False, "emoji": False, "stderr": stderr, "file": file, **options})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments, with visible signs for control characters."""
        for segment in super().render(renderable, options):
            is_own = bool(segment.control)
            yield segment if is_own else Segment(printable_text(segment.text), segment.style)


_WIDTH_OF_PIPES: Final = 160


def output_console() -> Console:
    """Return the console for standard output; into a pipe it writes wide lines without colours."""
    output = own_output()
    if isinstance(output, TextIOWrapper):
        output.reconfigure(errors="replace")  # some encodings have no box or bar characters
    has_width = output.isatty() or "COLUMNS" in os.environ
    return Terminal(width=None if has_width else _WIDTH_OF_PIPES)


def working(at: str) -> AbstractContextManager[object]:
    """Return a status line on standard error, if that is a terminal."""
    console = Terminal(stderr=True)
    return console.status(at) if console.is_terminal else nullcontext()
