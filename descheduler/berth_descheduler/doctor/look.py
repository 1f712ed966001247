"""One look at a live cluster for everything that `berth doctor` finds."""

from collections.abc import Sequence
from datetime import datetime

from berth_core import DeschedulerPolicy
from berth_descheduler.doctor.reservations import find_refused_placeholders, find_waits_in_vain
from berth_descheduler.doctor.unanswered_evictions import find_unanswered_evictions
from berth_descheduler.doctor.unreadable_objects import find_unreadable_objects
from berth_descheduler.migration.replacement_trial.findings import find_unbounded_account
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_kube import DESCHEDULER_POLICIES, KubeClient, NotFoundError
from berth_sandbox.invariants import Violation, find_troubles, read_state


def find_all_troubles(client: KubeClient, own_namespace: str, now: datetime) -> tuple[Violation, ...]:
    """Return what is not as it must be; some of it may still pass by itself.

    Raises a `KubeError` where a kind may not be read.
    """
    state, policies = read_state(client, own_namespace=own_namespace), read_policies(client)
    return (
        *find_troubles(state, now=now),
        *find_waits_in_vain(state),
        *find_refused_placeholders(state),
        *(finding for capability in EVERY_CAPABILITY for finding in capability.findings(client, state, policies)),
        *find_unanswered_evictions(client, state),
        *find_unreadable_objects(client, state, policies),
        *find_unbounded_account(client, own_namespace),
    )


def read_policies(client: KubeClient) -> Sequence[DeschedulerPolicy]:
    """Return all policies, none where the cluster does not know them."""
    try:
        return client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    except NotFoundError:
        return ()
