"""Parameters of requests: names, shapes, keys and filters."""

import re
from typing import Annotated, Any, Final

from fastapi import Header, Path, Query
from pydantic import Field

from berth_core import PlanPhase
from berth_descheduler.api.problems import FieldFault, ProblemError, ProblemKind, fault, invalid
from berth_descheduler.api.schemas import LONGEST_NAME, NAME_PATTERN
from berth_descheduler.planner import CapacityShape, read_shape

MOST_SHAPES: Final = 8
MOST_PLANS: Final = 500
LONGEST_SHAPE: Final = 300
_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,30}[a-z0-9])?"
_DOMAIN: Final = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL}){{0,5}}/"
_RESOURCE: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,60}[A-Za-z0-9])?"
_SMALL: Final = r"0\.[0-9]{0,2}[1-9]"


def _number(digits: int) -> str:
    """Return a pattern for positive numbers with so many integer digits."""
    return rf"(?:[1-9][0-9]{{0,{digits - 1}}}(?:\.[0-9]{{1,3}})?|{_SMALL})"


# Bounded by what can be planned with (`berth_core.resources.MOST_AMOUNT`), which counts cores in thousandths.
_CORES: Final = rf"(?:{_number(9)}m?|{_number(8)}(?:k|Ki)|{_number(5)}Mi?|{_number(2)}Gi?)"
_TERA: Final = rf"(?:(?:[1-9][0-9]?|[1-4][0-9]{{2}})(?:\.[0-9]{{1,3}})?|{_SMALL})"
_QUANTITY: Final = rf"(?:{_number(9)}(?:m|k|Ki)?|{_number(8)}Mi?|{_number(5)}Gi?|{_TERA}Ti?)"
_WHOLE: Final = r"[1-9](?:[0-9]{0,8}(?:k|Ki)?|[0-9]{0,7}Mi?|[0-9]{0,4}Gi?|[0-9]?Ti?)"
_AMOUNT: Final = rf"(?:cpu={_CORES}|(?!(?:pods|count|cpu)=){_RESOURCE}={_QUANTITY}|{_DOMAIN}{_RESOURCE}={_WHOLE})"
SHAPE_PATTERN: Final = rf"^(?!(?:.*,)?([^,=]+)=[^,]*,(?:.*,)?\1=){_AMOUNT}(?:,{_AMOUNT}){{0,7}}$"
"""Amounts of different resources; pod slots are counted anyway."""

_SHAPE: Final = re.compile(SHAPE_PATTERN)

_SHAPE_EXPECTED: Final = "amounts of different resources such as cpu=4,memory=8Gi"
KEY_PATTERN: Final = r"^[!-~]{1,200}$"
ENTITY_TAG_PATTERN: Final = r'^(W/)?("[0-9A-Za-z._-]{1,100}"|[0-9A-Za-z._-]{1,100})$'
POSITION_PATTERN: Final = r"^[0-9TZ:.-]{0,40}/[a-z0-9.-]{1,253}$"
"""The position of a plan in a list: its time of creation, and its name."""

PlanName = Annotated[
    str, Path(max_length=LONGEST_NAME, pattern=NAME_PATTERN, description="The plan's name.", examples=["plan-1"])
]

_ShapeText = Annotated[
    str,
    # `read_shapes` checks it: the pattern uses lookahead, which pydantic does not support.
    Field(json_schema_extra={"maxLength": LONGEST_SHAPE, "pattern": SHAPE_PATTERN}),
]

Shapes = Annotated[
    list[_ShapeText] | None,
    Query(
        alias="shape",
        max_length=MOST_SHAPES,
        description="What a pod requests, such as `cpu=4,memory=8Gi`; may be repeated. Default: what most pending "
        "pods request, else the largest pods that controllers create.",
        examples=[["cpu=4,memory=8Gi"]],
    ),
]

PolicyFilter = Annotated[
    str | None,
    Query(
        alias="policy",
        max_length=LONGEST_NAME,
        pattern=NAME_PATTERN,
        description="Only plans of the policy of this name.",
    ),
]

PhaseFilter = Annotated[PlanPhase | None, Query(alias="phase", description="Only plans in this phase.")]

PlanLimit = Annotated[int, Query(alias="limit", ge=1, le=MOST_PLANS, description="The most plans to return.")]

PlansBefore = Annotated[
    str | None,
    Query(
        alias="continue",
        pattern=POSITION_PATTERN,
        description="The `continue` of the answer before: the plans after it.",
        examples=["2026-11-20T04:00:00Z/plan-1"],
    ),
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_PATTERN,
        description="A repeated request with the same key and caller returns the plan of the first one, as long as "
        "that plan exists. A different request with the key is a conflict.",
    ),
]

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=ENTITY_TAG_PATTERN,
        description="The ETag of the plan that was looked at, or its `version`: it is approved only if it is still "
        "that one.",
        examples=['"4711"'],
    ),
]

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=100,
        description="The id of the last event received. The stream resumes after it or, if that is no longer known, "
        "starts with the whole plan. 204 if the plan is over and nothing was missed.",
    ),
]


def read_version(tag: str | None, version: str) -> str:
    """Return the version that the header If-Match and a body name, "" if neither does; raises `ProblemError`."""
    # A proxy that compresses answers may have marked the tag as weak (RFC 9110, 8.8.1): the version is the same.
    tagged_version = (tag or "").removeprefix("W/").strip('"')
    if version and tagged_version and version != tagged_version:
        text = f"the header If-Match and the body name two versions, {tagged_version} and {version}; a plan has one"
        faults = [fault("body.version", version, f"{tagged_version}, as the header If-Match says")]
        raise ProblemError(ProblemKind.CONFLICT, text, faults=faults)
    return version or tagged_version


def read_shapes(texts: list[str]) -> tuple[CapacityShape, ...]:
    """Return the shapes of a request; raises `ProblemError` naming each bad one."""
    faults: list[FieldFault] = []
    shapes: list[CapacityShape] = []
    for index, text in enumerate(texts):
        if len(text) <= LONGEST_SHAPE and _SHAPE.fullmatch(text):
            shapes.append(read_shape(text))
        else:
            faults.append(fault(f"query.shape[{index}]", text, _SHAPE_EXPECTED))
    if faults:
        raise invalid(faults)
    return tuple(shapes)


def refuse_unknown(given: dict[str, Any], known: set[str]) -> None:
    """Raise `ProblemError` if a query has unknown parameters."""
    expected = f"one of {', '.join(sorted(known))}" if known else "no parameter"
    faults = [
        fault(f"query.{parameter[:80]}", given[parameter], expected) for parameter in given if parameter not in known
    ]
    if faults:
        raise invalid(faults)
