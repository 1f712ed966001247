"""Findings with their explanations, as documents of the command and of the HTTP interface."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

import msgspec

from berth_core import format_timestamp
from berth_descheduler.doctor.advice import ADVICE
from berth_descheduler.doctor.rights import rights_to
from berth_kube import Access
from berth_sandbox.invariants import Violation

_ORDER: Final = {invariant: index for index, invariant in enumerate(ADVICE)}


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is not as it must be, on one object."""

    invariant: str
    kind: str
    """Of the object, as kubectl takes it."""
    namespace: str
    name: str
    detail: str
    what: str
    why: str
    to_do: str
    command: str


class WatchedFinding(Finding, frozen=True, kw_only=True, rename="camel"):
    """What is not as it must be, as of the last of several looks."""

    may_pass: bool
    """Whether Berth is still given time to mend it by itself."""


class FindingList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found, the cause of others first."""

    items: tuple[WatchedFinding, ...]
    missing_rights: tuple[str, ...]
    """Rights without which more could not be looked for, or shown."""
    looked_at: str


def describe_finding(violation: Violation, own_namespace: str) -> Finding:
    return Finding(**_explained(violation, own_namespace))


def describe_findings(
    may_pass_by_violation: Mapping[Violation, bool], missing: AbstractSet[Access], own_namespace: str, at: datetime
) -> FindingList:
    """Return the findings that need none of the missing rights."""
    shown = [violation for violation in may_pass_by_violation if missing.isdisjoint(rights_to(violation))]
    return FindingList(
        items=tuple(
            WatchedFinding(**_explained(violation, own_namespace), may_pass=may_pass_by_violation[violation])
            for violation in sorted(shown, key=lambda violation: (_ORDER[violation.invariant], violation))
        ),
        missing_rights=tuple(sorted(map(str, missing))),
        looked_at=format_timestamp(at),
    )


def _explained(violation: Violation, own_namespace: str) -> dict[str, str]:
    advice = ADVICE[violation.invariant]
    return {
        "invariant": violation.invariant.value,
        "kind": violation.kind,
        "namespace": violation.namespace,
        "name": violation.name,
        "detail": violation.detail,
        "what": advice.what,
        "why": advice.why,
        "to_do": advice.to_do,
        "command": advice.command_for(violation, own_namespace),
    }
