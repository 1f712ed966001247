"""DeschedulerPolicies as documents for programs and as a table for people."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from berth_core import (
    VALID,
    Condition,
    DeschedulerPolicy,
    FragmentationStatus,
    RunMode,
    Trigger,
    parse_timestamp,
    span_in_words,
)

_TRUE: Final = "True"
_FALSE: Final = "False"


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy: when it runs, how far it goes by itself, and what became of its last run."""

    name: str
    mode: RunMode
    suspend: bool
    trigger: Trigger
    node_selector: str
    valid: bool | None
    """null while the service has not looked at it."""
    invalid_because: str
    warnings: tuple[str, ...]
    last_run_time: str | None
    last_verdict: str
    last_outcome: str
    last_plan: str
    next_run_time: str | None
    fragmentation: FragmentationStatus | None
    conditions: tuple[Condition, ...]


class PolicyList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All policies by name."""

    items: tuple[PolicyDocument, ...]


def trigger_in_words(trigger: Trigger) -> str:
    """Return what starts runs of a policy, in words."""
    if trigger.cron:
        return f"{trigger.cron}{f' {trigger.time_zone}' if trigger.time_zone else ''}"
    return f"every {trigger.interval}" if trigger.interval else "on request"


def describe_policy(policy: DeschedulerPolicy) -> PolicyDocument:
    """Return a policy with its status."""
    spec, status = policy.spec, policy.status
    return PolicyDocument(
        name=policy.metadata.name,
        mode=spec.mode,
        suspend=spec.suspend,
        trigger=spec.trigger,
        node_selector=spec.node_selector,
        valid=_truth(policy.condition(VALID)),
        invalid_because=_message(policy),
        warnings=status.warnings,
        last_run_time=status.last_run_time,
        last_verdict=status.last_verdict,
        last_outcome=status.last_outcome,
        last_plan=status.last_plan,
        next_run_time=status.next_run_time,
        fragmentation=status.fragmentation,
        conditions=status.conditions,
    )


def list_policies(policies: Iterable[DeschedulerPolicy]) -> PolicyList:
    """Return policies by name."""
    return PolicyList(
        items=tuple(describe_policy(policy) for policy in sorted(policies, key=lambda policy: policy.metadata.name))
    )


NO_POLICIES: Final = "There are no policies. A DeschedulerPolicy says when to run and by which rules."


def render_policies(policies: Sequence[DeschedulerPolicy], now: datetime, *, wide: bool = False) -> RenderableType:
    """Return a table of policies by name; a wide one also has their nodes, their limit of moves, and the method."""
    if not policies:
        return Text(NO_POLICIES)
    table = Table("policy", "trigger", "mode", "valid", box=None, padding=(0, 2, 0, 0))
    for heading in ("last run", "next run"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("nodes", "most moves", "moved by") if wide else ():
        table.add_column(heading, overflow="fold")
    table.add_column("last plan", overflow="fold")
    table.add_column("outcome", overflow="fold")
    for policy in sorted(policies, key=lambda listed_policy: listed_policy.metadata.name):
        spec, status = policy.spec, policy.status
        trigger = f"{trigger_in_words(spec.trigger)}{' (suspended)' if spec.suspend else ''}"
        times = _since(status.last_run_time, now), _until(status.next_run_time, now)
        row = (policy.metadata.name, trigger, spec.mode.value, _validity(policy), *times)
        wide_cells = (spec.node_selector or "all", str(spec.limits.max_moves or ""), spec.moves.value) if wide else ()
        table.add_row(*row, *wide_cells, status.last_plan, _message(policy) or status.last_outcome)
    return table


def _message(policy: DeschedulerPolicy) -> str:
    """Return why a policy is invalid, "" if it is not."""
    condition = policy.condition(VALID)
    return condition.message if condition is not None and condition.status == _FALSE else ""


def _validity(policy: DeschedulerPolicy) -> Text:
    match _truth(policy.condition(VALID)):
        case True:
            return Text("yes", style="green")
        case False:
            return Text("no", style="red")
        case _:
            return Text("not looked at", style="yellow")


def _truth(condition: Condition | None) -> bool | None:
    """Return whether a condition holds, None if that is unknown."""
    return {_TRUE: True, _FALSE: False}.get(condition.status) if condition is not None else None


def _since(text: str | None, now: datetime) -> str:
    return f"{span_in_words(now - parse_timestamp(text))} ago" if text else "never"


def _until(text: str | None, now: datetime) -> str:
    if not text:
        return ""
    time_left = parse_timestamp(text) - now
    return f"in {span_in_words(time_left)}" if time_left.total_seconds() > 0 else "now"
