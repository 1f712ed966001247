"""What the pages say of options, metrics and reasons is what the programs have."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from berth_core.migration_plans import MoveReason, MoveState
from berth_core.policies import (
    SCHEDULED,
    VALID,
    DeschedulerPolicySpec,
    DeschedulerPolicyStatus,
    ScheduledReason,
    ValidReason,
)
from berth_core.reservations import ReservationPhase, ReservationReason
from berth_descheduler.api.access_log import RequestMetrics
from berth_descheduler.cli.main import berth
from berth_descheduler.controller.status import FAILED
from berth_descheduler.metrics import RunTally
from berth_descheduler.outcome import Verdict
from berth_descheduler.server import serve
from berth_descheduler.telemetry import PolicyEventReason
from berth_operator.cli import main as operator
from berth_operator.metrics import REGISTRY
from builders import FakeClock
from conventions.tracked import ROOT

OPERATOR_PAGE = ROOT / "operator" / "README.md"
DESCHEDULER_PAGE = ROOT / "descheduler" / "README.md"
PAGES = (ROOT / "README.md", OPERATOR_PAGE, DESCHEDULER_PAGE)
OPTIONS_OF_OTHERS = {
    *("--all-namespaces", "--for"),
    *("--clusterrole", "--data", "--duration", "--resource", "--serviceaccount", "--verb"),
}
"""kubectl's and curl's, in examples."""


def options(command: click.Command) -> Iterator[str]:
    """Yield the options of a command and of all commands below it."""
    context = click.Context(command)
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found)


def named_options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def code_words(text: str) -> set[str]:
    """Return the CamelCase words in the cells of a page's tables."""
    cells = (cell for line in text.splitlines() if line.startswith("| ") for cell in line.split("|"))
    return {word for cell in cells for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", cell)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_names_options_that_exist(page: Path) -> None:
    known = {*options(berth), *options(serve), *options(operator)} | OPTIONS_OF_OTHERS
    assert not named_options(page.read_text(encoding="utf-8")) - known


def test_the_operators_page_has_every_option() -> None:
    wanted = {option for option in options(operator) if option.startswith("--")} - {"--help"}
    assert not wanted - named_options(OPERATOR_PAGE.read_text(encoding="utf-8"))


def metric_names(registry: CollectorRegistry) -> set[str]:
    counters = {family.name: family.type == "counter" for family in registry.collect()}
    return {f"{name}_total" if is_counter else name for name, is_counter in counters.items()}


def test_the_operators_page_has_its_metrics() -> None:
    assert set(re.findall(r"`(berth_[a-z_]+)", OPERATOR_PAGE.read_text(encoding="utf-8"))) == metric_names(REGISTRY)


def test_the_deschedulers_page_has_its_metrics() -> None:
    registry = CollectorRegistry()
    RunTally(registry, FakeClock())
    RequestMetrics(registry)
    assert set(re.findall(r"`(berth_[a-z_]+)", DESCHEDULER_PAGE.read_text(encoding="utf-8"))) == metric_names(registry)


def test_the_deschedulers_page_explains_every_state_and_reason_of_a_move() -> None:
    wanted = {*map(str, MoveState), *map(str, MoveReason)} - {""}
    assert not wanted - code_words(DESCHEDULER_PAGE.read_text(encoding="utf-8"))


def test_the_deschedulers_page_explains_what_a_policy_says_of_itself() -> None:
    words = {FAILED, *map(str, ValidReason), *map(str, ScheduledReason), VALID, SCHEDULED}
    verdicts = set(map(str, Verdict)) - {"DryRun", "LeaseHeld", "NotApproved"}
    page = DESCHEDULER_PAGE.read_text(encoding="utf-8")
    assert not (words | verdicts) - code_words(page)
    assert not [reason.value for reason in PolicyEventReason if f"`{reason.value}`" not in page]


def policy_fields(kind: type, path: str) -> Iterator[str]:
    """Yield the fields of a policy's spec or status that have no fields of their own."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from policy_fields(field.type, f"{path}{field.encode_name}.")
        else:
            yield f"{path}{field.encode_name}"


def test_the_deschedulers_page_has_every_field_of_a_policy() -> None:
    page = DESCHEDULER_PAGE.read_text(encoding="utf-8")
    fields = [*policy_fields(DeschedulerPolicySpec, ""), *policy_fields(DeschedulerPolicyStatus, "")]
    assert len(fields) > 25
    named = {name for text in re.findall(r"`([a-zA-Z.]+)`", page) for name in (text, text.rpartition(".")[2])}
    assert not {field.rpartition(".")[2] for field in fields} - named


def test_the_operators_page_has_phases_and_reasons_that_exist() -> None:
    rows = re.findall(
        r"^\| (\w+) \| ([A-Z]\w+(?:, [A-Z]\w+)*) \|", OPERATOR_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {phase for phase, _ in rows} <= {"phase", *map(str, ReservationPhase)}
    reasons = {reason for _, cell in rows for reason in cell.split(", ")}
    assert len(reasons) > len(rows) > len(ReservationPhase) - 2
    assert reasons <= set(map(str, ReservationReason))
