"""Owns which Leases the descheduler takes: that of runs, one at a time, and that of the replica that serves policies.

It does not own how a Lease is taken and kept.
"""

from berth_core.clock import Clock
from berth_core.names import DESCHEDULER_LEASE, LEADER_LEASE
from berth_descheduler.settings import CycleSettings
from berth_kube.client import KubeClient
from berth_kube.leases import LeaseHolder


def run_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the Lease of runs; one that is kept knows from before how long another has been silent."""
    return _lease(client, clock, settings, DESCHEDULER_LEASE)


def leader_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the Lease of the replica that serves the policies."""
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
