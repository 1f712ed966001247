"""What protection thresholds keep free on each node."""

from collections.abc import Mapping
from fractions import Fraction

from berth_descheduler.planner.settings import WHOLE, Thresholds
from berth_descheduler.planner.simulation.cluster import Cluster


def protected_amounts(cluster: Cluster, protection: Thresholds) -> Mapping[int, tuple[int, ...]]:
    """Return each node's least free amount, per protected column."""
    limits_by_column = [
        (cluster.column[name], limit) for name, limit in protection.percentages if name in cluster.column
    ]
    return {
        column: tuple(_least_free(row[column], limit) for row in cluster.capacity) for column, limit in limits_by_column
    }


def _least_free(capacity: int, limit: Fraction) -> int:
    # In integers: each look at a plan's next moves asks this for every node, and a product of fractions computes a
    # greatest common divisor.
    return capacity - capacity * limit.numerator // (limit.denominator * WHOLE)
