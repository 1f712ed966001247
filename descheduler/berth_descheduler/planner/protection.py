"""Owns what protection thresholds keep free on each node.

It does not own who may fill a node up to them: that is the strategies'.
"""

from collections.abc import Mapping
from fractions import Fraction

from berth_descheduler.planner.cluster import Cluster
from berth_descheduler.plugins.thresholds import WHOLE, Thresholds


def protected_amounts(cluster: Cluster, protection: Thresholds) -> Mapping[int, tuple[int, ...]]:
    """Return per protected column the least amount that has to stay free on each node."""
    known = [(cluster.column[name], limit) for name, limit in protection.percentages if name in cluster.column]
    return {column: tuple(_least_free(row[column], limit) for row in cluster.capacity) for column, limit in known}


def _least_free(capacity: int, limit: Fraction) -> int:
    share = capacity * limit / WHOLE
    return capacity - share.numerator // share.denominator
