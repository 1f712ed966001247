"""Owns the telling of what happened to a plan, a policy or a pod: as an event on it, for `kubectl describe`.

It does not own the reasons (`event_reasons`), nor when there is something to tell.
"""

from typing import Final, assert_never

from msgspec.structs import replace

from berth_core import migration_plans, policies
from berth_core.clock import Clock
from berth_core.migration_plans import MigrationPlan, PlannedMove
from berth_core.policies import DeschedulerPolicy
from berth_core.reservations import ObjectReference
from berth_descheduler.event_reasons import COMPONENT, EventReason, PodEventReason, PolicyEventReason
from berth_kube.client import KubeClient
from berth_kube.events import record_event

_PATIENCE_SECONDS: Final = 5.0
"""How long each event of an eviction may keep a thread."""


def announce(
    client: KubeClient,
    clock: Clock,
    about: MigrationPlan | DeschedulerPolicy,
    reason: EventReason | PolicyEventReason,
    message: str,
    *,
    bad: bool = False,
) -> None:
    """Record an event on a plan or a policy, a warning where it is bad; one that cannot be recorded is only logged."""
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
    """Record on an evicted pod and on its controller from where to where it goes, and for which plan."""
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=move.namespace, name=move.pod, uid=move.pod_uid)
    regarded = [(pod, "evicted")]
    if move.owner is not None:
        regarded.append((replace(move.owner, namespace=move.namespace), f"pod {move.pod} was evicted"))
    for regarding, what in regarded:
        record_event(
            client.within(_PATIENCE_SECONDS),
            regarding=regarding,
            reason=PodEventReason.EVICTED.value,
            message=f"{what} from {move.source} by the plan {plan}; its replacement has a place on {move.target}",
            reporting_component=COMPONENT,
            clock=clock,
        )


def _refer_to(about: MigrationPlan | DeschedulerPolicy) -> ObjectReference:
    match about:
        case MigrationPlan():
            kind, api_version = migration_plans.KIND, migration_plans.API_VERSION
        case DeschedulerPolicy():
            kind, api_version = policies.KIND, policies.API_VERSION
        case _:
            assert_never(about)
    return ObjectReference(api_version=api_version, kind=kind, name=about.metadata.name, uid=about.metadata.uid)
