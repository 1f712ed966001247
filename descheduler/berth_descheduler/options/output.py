"""What lists and results have in common: `--output`, `--selector`, and how results are written for machines."""

import json
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from berth_core import InputError, parse_selector, printable_line
from berth_service.command_line import write_line
from berth_service.standard_output import own_output

F = TypeVar("F", bound=Callable[..., Any])

_CONTROLS: Final = re.compile("[\x7f-\x9f]")
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Output(StrEnum):
    """For whom a command writes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    """A table with more columns."""
    NAME = "name"
    """The objects as kubectl takes them, a line each."""

    @property
    def for_people(self) -> bool:
        """Return whether it is a table, in its usual width or in the wide one."""
        return self in {Output.TABLE, Output.WIDE}


def selector_option(kind: str) -> Callable[[F], F]:
    """Return a decorator that adds `--selector`; its value is a valid selector of this kind's labels, "" for all."""
    text = f"Only {kind} with these labels, such as team=ml,tier!=db."
    return click.option("-l", "--selector", default="", metavar="LABELS", callback=_check_selector, help=text)


def _check_selector(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    try:
        parse_selector(text)
    except InputError as error:
        raise InputError("--selector", text, error.expected) from error
    return text


def all_namespaces_option(command: F) -> F:
    """Add `--all-namespaces`, which changes nothing: it is so without it."""
    text = "The default; accepted because kubectl has it."
    return click.option("-A", "--all-namespaces", is_flag=True, expose_value=False, help=text)(command)


def output_option(command: F) -> F:
    """Add `--output`, whose value is an `Output` for people or for documents."""
    return _output_option(*(output for output in Output if output is not Output.NAME))(command)


def objects_output_option(command: F) -> F:
    """Add `--output` of a command that shows objects of the cluster, any `Output`."""
    return _output_option(*Output)(command)


def _output_option(*outputs: Output) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice([output.value for output in outputs]),
        default=Output.TABLE.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Output(value),
        help="For people (table, wide) or for machines.",
    )


def write_names(kind: str, names: Iterable[str]) -> None:
    """Write objects as `kubectl get --output name` does; `kind` has its group."""
    for name in names:
        write_line(f"{kind}/{printable_line(name)}")


def write_described(described: object, output: Output, *, indent: int | None = 2) -> None:
    """Write a document or builtins to standard output in their own order; JSON without an indent is one line."""
    builtins = msgspec.to_builtins(described, str_keys=True)
    own_output().write(to_json(builtins, indent=indent) if output is Output.JSON else to_yaml(builtins))
    own_output().flush()  # an output that takes no more fails here, not at the end of the process


def to_json(described: object, *, indent: int | None = 2) -> str:
    """Return builtins as JSON text; equal ones give the same bytes."""
    text = json.dumps(described, ensure_ascii=False)  # with an indent several times slower
    return _escaped(text if indent is None else msgspec.json.format(text, indent=indent)) + "\n"


def _escaped(text: str) -> str:
    """Return JSON in which the control characters that it may contain, delete and the C1 set, are escaped."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def to_yaml(described: object) -> str:
    """Return builtins as YAML text; equal ones give the same bytes."""
    text: str = yaml.dump(json.loads(json.dumps(described)), Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    return text
