"""Owns what a request may say: names, shapes, keys, and the body that asks for a run.

It does not own what becomes of it.
"""

import re
from typing import Annotated, Any, Final, Literal

from fastapi import Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from berth_core.migration_plans import PlanPhase
from berth_descheduler.api.problems import FieldFault, fault, invalid
from berth_descheduler.planner.asked_shapes import AskedShape, read_shape

MOST_SHAPES: Final = 8
MOST_PLANS: Final = 500
LONGEST_NAME: Final = 253
LONGEST_SHAPE: Final = 300

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_RESOURCE: Final = r"(?:[a-z0-9](?:[-a-z0-9.]{0,60}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,60}[A-Za-z0-9])?"
_SMALL: Final = r"0\.[0-9]{0,2}[1-9]"


def _number(digits: int) -> str:
    """Return the pattern of a number above zero with at most so many digits before the point."""
    return rf"(?:[1-9][0-9]{{0,{digits - 1}}}(?:\.[0-9]{{1,3}})?|{_SMALL})"


# No larger than what can be planned with (`berth_core.resources.MOST_AMOUNT`), which counts cores in thousandths.
_CORES: Final = rf"(?:{_number(9)}m?|{_number(8)}(?:k|Ki)|{_number(5)}Mi?|{_number(2)}Gi?)"
_TERA: Final = rf"(?:(?:[1-9][0-9]?|[1-4][0-9]{{2}})(?:\.[0-9]{{1,3}})?|{_SMALL})"
_QUANTITY: Final = rf"(?:{_number(9)}(?:m|k|Ki)?|{_number(8)}Mi?|{_number(5)}Gi?|{_TERA}Ti?)"
_AMOUNT: Final = rf"(?:cpu={_CORES}|(?!(?:pods|count|cpu)=){_RESOURCE}={_QUANTITY})"
SHAPE_PATTERN: Final = rf"^(?!(?:.*,)?([^,=]+)=[^,]*,(?:.*,)?\1=){_AMOUNT}(?:,{_AMOUNT}){{0,7}}$"
"""Amounts of different resources; pod slots are counted without being asked for."""

_SHAPE: Final = re.compile(SHAPE_PATTERN)
_SHAPE_EXPECTED: Final = "amounts of different resources such as cpu=4,memory=8Gi"
KEY_PATTERN: Final = r"^[!-~]{1,200}$"

PlanName = Annotated[
    str, Path(max_length=LONGEST_NAME, pattern=NAME_PATTERN, description="The plan's name.", examples=["plan-1"])
]
_ShapeText = Annotated[
    str,
    # Checked by `read_shapes`: the pattern looks ahead, which the checks of pydantic do not.
    Field(json_schema_extra={"maxLength": LONGEST_SHAPE, "pattern": SHAPE_PATTERN}),
]
Shapes = Annotated[
    list[_ShapeText] | None,
    Query(
        alias="shape",
        max_length=MOST_SHAPES,
        description="What a pod asks for that is to find room, such as `cpu=4,memory=8Gi`; may be repeated. Without "
        "it: what most pending pods ask for, else the largest pods that controllers make.",
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
PlanLimit = Annotated[int, Query(alias="limit", ge=1, le=MOST_PLANS, description="The most plans to answer with.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_PATTERN,
        description="With the same key from the same caller, asking again is asking once: the answer names the plan "
        "that is there, as long as it is kept. Another request under the key is a conflict.",
    ),
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=100,
        description="The id of the last event that was read: what came after it is told, or, if that is not known any "
        "more, the whole plan. 204 where nothing can come any more.",
    ),
]


class RunRequest(BaseModel):
    """A run that is asked for."""

    model_config = ConfigDict(strict=True, extra="forbid", title="RunRequest")

    policy: Annotated[
        str, Field(max_length=LONGEST_NAME, pattern=NAME_PATTERN, description="The policy by whose rules to run.")
    ]
    mode: Annotated[
        Literal["Plan", "Approve", "Auto"] | None,
        Field(
            description="How far the run goes. Plan: the plan is published and nothing is touched. Approve: it waits "
            "to be approved. Auto: it is carried out, which needs the right to approve as well. Default: the policy's."
        ),
    ] = None
    dry_run: Annotated[
        bool, Field(alias="dryRun", description="Publish the plan and never carry it out, whatever the mode.")
    ] = False


def read_shapes(texts: list[str]) -> tuple[AskedShape, ...]:
    """Return the shapes of a request; raises `ProblemError` naming each that is none."""
    faults: list[FieldFault] = []
    shapes: list[AskedShape] = []
    for index, text in enumerate(texts):
        if len(text) <= LONGEST_SHAPE and _SHAPE.fullmatch(text):
            shapes.append(read_shape(text))
        else:
            faults.append(fault(f"query.shape[{index}]", text, _SHAPE_EXPECTED))
    if faults:
        raise invalid(faults)
    return tuple(shapes)


def refuse_unknown(given: dict[str, Any], known: set[str]) -> None:
    """Raise `ProblemError` where a query has parameters that mean nothing here."""
    expected = f"one of {', '.join(sorted(known))}" if known else "no parameter"
    faults = [fault(f"query.{name[:80]}", given[name], expected) for name in given if name not in known]
    if faults:
        raise invalid(faults)
