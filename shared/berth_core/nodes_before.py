"""Owns the part of the MigrationPlan contract that says how full the nodes were when the plan was made.

It does not own the rest of the plan (`berth_core.migration_plans`), nor which nodes are noted.
"""

import msgspec


class NodeBefore(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How full one node was; the amounts are quantities of the resource that is noted."""

    name: str
    allocatable: str
    requested: str
    pods: int
    """Pods but DaemonSet and mirror pods."""


class NodesBefore(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How full the nodes were, of the resource that the plan goes by."""

    resource: str
    nodes: tuple[NodeBefore, ...] = ()
    left_out: int = 0
    """How many more nodes there were."""
