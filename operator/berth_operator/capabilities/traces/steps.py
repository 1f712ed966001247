"""Which span an action is, and where it stands in which trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from berth_core import ObjectMeta, Pod, Reservation
from berth_operator.reservation.act.executor import ExecutedAction
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    ChooseNodes,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    ExtendHandover,
    Nominate,
    Probe,
    Release,
    RenewPlaceholder,
    ShortenPlaceholder,
    SurveyNode,
    Ungate,
    Validate,
    label_of,
)
from berth_service.traces import PLAN_SPAN, move_span


@dataclass(frozen=True, slots=True)
class ActionSpan:
    """The name, ids and attributes of the span of one action."""

    name: str
    trace: str
    """The uid of the plan, or of the Reservation where it is of no plan."""
    span: str
    parent: str | None
    attributes: Mapping[str, str]


def describe_step(executed: ExecutedAction) -> ActionSpan | None:
    """Return the span of an action; None for one that neither holds a place nor hands it over."""
    subject = _subject(executed.action)
    if subject is None:
        return None
    reservation, label = executed.reservation, label_of(type(executed.action))
    pod = {"k8s.namespace.name": subject.metadata.namespace, "k8s.pod.name": subject.metadata.name}
    return ActionSpan(
        name=label,
        trace=reservation.plan_uid or reservation.metadata.uid,
        span=f"{reservation.metadata.uid}/{label}/{subject.metadata.uid}/{executed.began_at.isoformat()}",
        parent=_parent(reservation) if reservation.plan_uid else None,
        attributes={"berth.reservation": reservation.key, **{key: value for key, value in pod.items() if value}},
    )


def _subject(action: Action) -> Pod | None:
    """Return the pod that an action is about, an unnamed one for a placeholder that is created; None for no step."""
    match action:
        case AssignSlot(pod) | ExtendHandover(pod) | Nominate(pod) | Ungate(pod) | CompleteHandover(pod) | Release(pod):
            return pod
        case DeletePlaceholder(pod) | ShortenPlaceholder(pod):
            return pod
        case RenewPlaceholder(placeholder=pod):
            return pod
        case CreatePlaceholder(task, index):
            return Pod(metadata=ObjectMeta(uid=f"{task.name}/{index}"))
        case Validate() | ChooseNodes() | SurveyNode() | Probe() | DeleteReservation():
            return None
        case _:
            assert_never(action)


def _parent(reservation: Reservation) -> str:
    return PLAN_SPAN if reservation.move is None else move_span(reservation.move)
