"""`--report FILE.html`: the option, the rendered page and the file."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from berth_core import InputError, printable_text
from berth_descheduler.report.page import LISTED_MOVES, LISTED_NODES, LISTED_PER_REASON, ReportPage
from berth_service.whole_files import create_beside, replace_file

if TYPE_CHECKING:
    from jinja2 import Template

F = TypeVar("F", bound=Callable[..., Any])

_OPTION: Final = "--report"
_PACKAGE: Final = "berth_descheduler"
_TEMPLATE: Final = "report.html.j2"
_WORD_START: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_HELP: Final = "Also write a self-contained page for the browser to this file, replacing it."


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file that a report can be written to."""

    path: Path

    @classmethod
    def parse(cls, name: str) -> "ReportFile":
        """Return the file; raises `InputError` if no page can be written."""
        path = Path(name)
        try:
            if name in {"", "-"} or (path.exists() and not path.is_file()):
                raise InputError(_OPTION, name, "a file to write to, such as report.html")
            report_file = cls(path.resolve())
            create_beside(report_file.path).unlink()
        except OSError as error:
            raise _unwritable(name, error) from error
        return report_file

    def write(self, page: ReportPage) -> None:
        """Write a page, replacing an old file atomically, and print where; raises `InputError`."""
        text = render_page(page)
        try:
            replace_file(self.path, text.encode(errors="replace"))
        except OSError as error:
            raise _unwritable(str(self.path), error) from error
        click.echo(f"wrote {printable_text(str(self.path))}", err=True)


def report_option(command: F) -> F:
    """Add `--report`, whose value is a `ReportFile` or None."""
    return click.option(_OPTION, type=click.Path(), metavar="FILE.html", callback=_parse_option, help=_HELP)(command)


def _parse_option(_context: click.Context, _parameter: click.Parameter, name: str | None) -> ReportFile | None:
    """Check that the file can be written before a run begins, whose report would be lost."""
    return None if name is None else ReportFile.parse(name)


def render_page(page: ReportPage) -> str:
    """Return a self-contained HTML page; every text in it is escaped."""
    limits = {"listed_moves": LISTED_MOVES, "listed_nodes": LISTED_NODES, "listed_per_reason": LISTED_PER_REASON}
    return printable_text(_template().render(page=page, **limits))


@cache
def _template() -> "Template":
    # Imported only when a page is made: the import would slow down every other command.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    def break_words(reason: str) -> Markup:
        """Return a reason, escaped, that may break before capital letters on narrow screens."""
        return Markup("<wbr>").join(_WORD_START.split(reason))

    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = break_words
    return environment.get_template(_TEMPLATE)


def _unwritable(name: str, error: OSError) -> InputError:
    return InputError(_OPTION, name, f"a file that can be written ({error.strerror})")
