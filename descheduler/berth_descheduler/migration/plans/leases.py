"""The descheduler's Leases: one for runs, one at a time, and one for the replica that serves policies."""

from berth_core import DESCHEDULER_LEASE, LEADER_LEASE, Clock
from berth_descheduler.settings import CycleSettings
from berth_kube import KubeClient, LeaseHolder


def run_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the Lease of runs, of which there is one at a time.

    Keep the holder between runs: it remembers how long the current one has been silent.
    """
    return _lease(client, clock, settings, DESCHEDULER_LEASE)


def leader_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the Lease of the leader, which serves the policies."""
    return _lease(client, clock, settings, LEADER_LEASE)


def _lease(client: KubeClient, clock: Clock, settings: CycleSettings, name: str) -> LeaseHolder:
    return LeaseHolder(
        client,
        settings.namespace,
        name,
        settings.identity,
        duration_seconds=settings.lease_seconds,
        clock=clock,
    )
