"""A console that shows what it is given as it is: names and messages come from others."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from berth_core.printable import printable_text


class Terminal(Console):
    """A console whose own colours and cursor movements are the only ones; brackets and colons are just text."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - what a console takes
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is shown, with visible signs for control characters."""
        for segment in super().render(renderable, options):
            is_own = bool(segment.control)
            yield segment if is_own else Segment(printable_text(segment.text), segment.style)
