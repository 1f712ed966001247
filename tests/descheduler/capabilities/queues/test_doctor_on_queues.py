"""What `berth doctor` finds about queues."""

from typing import Final

import pytest

from berth_core.gated_queues import GatedQueue
from berth_descheduler.capabilities.queues.findings import find_queue_troubles
from berth_sandbox.invariants import ClusterState, Invariant

QUEUES: Final = {
    "one that holds its guarantee": ("Held", "True", "SlotsHeld", None),
    "one that has only begun": ("Held", "Unknown", "NotHeldYet", None),
    "one that waits for long": ("Held", "False", "Waiting", Invariant.QUEUE_NOT_HELD),
    "one whose slots a limit refuses": ("Held", "False", "SlotsRefused", Invariant.QUEUE_NOT_HELD),
    "one with a shape larger than the guarantee": ("Held", "False", "ShapeTooLarge", Invariant.QUEUE_NOT_HELD),
    "one whose slots leave a rest": ("Held", "True", "Remainder", Invariant.QUEUE_NOT_HELD),
    "one whose guarantee counts": ("Accepted", "True", "Fits", None),
    "one whose guarantee is above the total": (
        "Accepted",
        "False",
        "GuaranteeAboveTotal",
        Invariant.QUEUE_REFUSED,
    ),
    "one that has its namespaces": ("Enforced", "True", "Gated", None),
    "one whose namespace Kueue manages": ("Enforced", "False", "ManagedByKueue", Invariant.QUEUE_NOT_ENFORCED),
    "one whose guarantee is free": ("Covered", "True", "Free", None),
    "one without a guarantee": ("Covered", "Unknown", "NoGuarantee", None),
    "one whose guarantee others use": ("Covered", "False", "UsedByOthers", Invariant.QUEUE_NOT_COVERED),
}


def queue_that_says(type_: str, status: str, reason: str, **spec: object) -> GatedQueue:
    condition = {"type": type_, "status": status, "reason": reason, "message": "as it says"}
    return GatedQueue.read({"metadata": {"name": "ml"}, "spec": spec, "status": {"conditions": [condition]}})


@pytest.mark.parametrize(("type_", "status", "reason", "want"), QUEUES.values(), ids=QUEUES)
def test_what_keeps_a_queue_from_its_guarantee_is_told(
    type_: str, status: str, reason: str, want: Invariant | None
) -> None:
    state = ClusterState(queues=(queue_that_says(type_, status, reason),))
    troubles = [(trouble.invariant, trouble.target, trouble.detail) for trouble in find_queue_troubles(state)]
    assert troubles == ([(want, "queue ml", f"{reason}: as it says")] if want else [])


def test_a_queue_that_is_switched_off_has_no_trouble() -> None:
    state = ClusterState(queues=(queue_that_says("Enforced", "False", "Suspended", suspend=True),))
    assert not tuple(find_queue_troubles(state))
