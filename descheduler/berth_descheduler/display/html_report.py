"""Owns `--report FILE.html`: the option, the page made from the template, and the file, which is whole or not there.

It does not own what the page says (`report_page`).
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from berth_core.errors import InputError
from berth_core.printable import printable_text
from berth_descheduler.display.report_page import LISTED_MOVES, LISTED_NODES, LISTED_PER_REASON, Page

if TYPE_CHECKING:
    from jinja2 import Template

F = TypeVar("F", bound=Callable[..., Any])

_OPTION: Final = "--report"
_PACKAGE: Final = "berth_descheduler"
_TEMPLATE: Final = "report.html.j2"
_WORD_START: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_HELP: Final = "Also write a page for the browser: one file that needs nothing else. It replaces what was there."


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file that a report can be written to, as far as can be known beforehand."""

    path: Path

    @classmethod
    def parse(cls, name: str) -> "ReportFile":
        """Return the file of a name; raises `InputError` where it cannot be written or no page can be made."""
        if find_spec("jinja2") is None:
            raise InputError(_OPTION, name, "jinja2 installed: the extra berth[descheduler] has it")
        path = Path(name)
        try:
            if name in {"", "-"} or (path.exists() and not path.is_file()):
                raise InputError(_OPTION, name, "a file to write to, such as report.html")
            found = cls(path.resolve())
            found.create_beside().unlink()
        except OSError as error:
            raise _unwritable(name, error) from error
        return found

    def write(self, page: Page) -> None:
        """Write a page; what was there stays as it is until the new page is whole. Raises `InputError`."""
        text = render_page(page)
        try:
            beside = self.create_beside()
            try:
                beside.write_text(text, encoding="utf-8", errors="replace", newline="\n")
                beside.replace(self.path)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(str(self.path), error) from error

    def create_beside(self) -> Path:
        """Return a new empty file in the same folder, with the rights that any new file gets; raises `OSError`."""
        beside = self.path.with_name(f".{self.path.stem[:40]}.{secrets.token_hex(4)}.tmp")
        beside.touch(exist_ok=False)
        return beside


def report_option(command: F) -> F:
    """Add `--report`, whose value is a `ReportFile` or None."""
    return click.option(_OPTION, metavar="FILE.html", callback=_parse_option, help=_HELP)(command)


def _parse_option(_context: click.Context, _parameter: click.Parameter, name: str | None) -> ReportFile | None:
    """Return the file, looked at before any work begins."""
    return None if name is None else ReportFile.parse(name)


def render_page(page: Page) -> str:
    """Return a page as HTML that needs nothing else; every text in it is escaped."""
    limits = {"listed_moves": LISTED_MOVES, "listed_nodes": LISTED_NODES, "listed_per_reason": LISTED_PER_REASON}
    return printable_text(_template().render(page=page, **limits))


@cache
def _template() -> "Template":
    """Return the template; jinja2 is imported here because it comes with an extra."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def break_words(reason: str) -> Markup:
        """Return a reason that a narrow screen may break before its capital letters; escaped as every text is."""
        return Markup("<wbr>").join(_WORD_START.split(reason))

    made = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["breakable"] = break_words
    return made.get_template(_TEMPLATE)


def _unwritable(name: str, error: OSError) -> InputError:
    return InputError(_OPTION, name, f"a file that can be written ({error.strerror})")
