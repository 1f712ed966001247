"""Kubernetes events on plans, policies and pods, for `kubectl describe`."""

from typing import Final, assert_never

from msgspec.structs import replace

from berth_core import (
    PLAN_API_VERSION,
    PLAN_KIND,
    POLICY_API_VERSION,
    POLICY_KIND,
    Clock,
    DeschedulerPolicy,
    MigrationPlan,
    ObjectReference,
    PlannedMove,
)
from berth_descheduler.event_reasons import COMPONENT, EventReason, PodEventReason, PolicyEventReason
from berth_kube import KubeClient, record_event

_PATIENCE_SECONDS: Final = 5.0
"""How long each event of an eviction may occupy a thread."""


def announce(
    client: KubeClient,
    clock: Clock,
    about: MigrationPlan | DeschedulerPolicy | ObjectReference,
    reason: EventReason | PolicyEventReason,
    message: str,
    *,
    bad: bool = False,
) -> None:
    """Record an event on a plan or policy, or on what stands for a policy; a failure is only logged.

    The event is a warning where `bad`.
    """
    record_event(
        client,
        regarding=_refer_to(about),
        reason=reason.value,
        message=message,
        type="Warning" if bad else "Normal",
        reporting_component=COMPONENT,
        clock=clock,
    )


def announce_eviction(client: KubeClient, clock: Clock, plan: str, move: PlannedMove) -> None:
    """Record an event on an evicted pod and on its controller.

    It names the plan, the source, and the target or why there is none.
    """
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=move.namespace, name=move.pod, uid=move.pod_uid)
    regarded = [(pod, "evicted")]
    if move.owner is not None:
        # An event of the pod alone would be hard to find: `kubectl describe` no longer finds the pod once it is gone.
        regarded.append((replace(move.owner, namespace=move.namespace), f"pod {move.pod} was evicted"))
    for regarding, action in regarded:
        destination = (
            f"its replacement has a place on {move.target}"
            if move.target
            else f"it has no place elsewhere: {move.reason}"
        )
        message = f"{action} from {move.source} by the plan {plan}; {destination}"
        _announce_on(client, clock, regarding, PodEventReason.EVICTED, message)


def announce_surge(client: KubeClient, clock: Clock, plan: str, move: PlannedMove, back: str = "") -> None:
    """Record an event on a pod that a surge move has let go, or has given back, and why."""
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=move.namespace, name=move.pod, uid=move.pod_uid)
    reason = PodEventReason.TAKEN_BACK if back else PodEventReason.LET_GO
    message = f"let go by its ReplicaSet for the plan {plan}, until its replacement on {move.target} is available"
    if back:
        message = f"given back to its ReplicaSet by the plan {plan}: {back}"
    _announce_on(client, clock, pod, reason, message, bad=bool(back))


def _announce_on(
    client: KubeClient,
    clock: Clock,
    regarding: ObjectReference,
    reason: PodEventReason,
    message: str,
    *,
    bad: bool = False,
) -> None:
    """Record an event on a pod or what controls it, without keeping the caller for long."""
    record_event(
        client.within(_PATIENCE_SECONDS),
        regarding=regarding,
        reason=reason.value,
        message=message,
        type="Warning" if bad else "Normal",
        reporting_component=COMPONENT,
        clock=clock,
    )


def _refer_to(about: MigrationPlan | DeschedulerPolicy | ObjectReference) -> ObjectReference:
    match about:
        case ObjectReference():
            return about
        case MigrationPlan():
            kind, api_version = PLAN_KIND, PLAN_API_VERSION
        case DeschedulerPolicy():
            kind, api_version = POLICY_KIND, POLICY_API_VERSION
        case _:
            assert_never(about)
    return ObjectReference.of(api_version, kind, about.metadata)
