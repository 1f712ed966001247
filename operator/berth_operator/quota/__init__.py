"""Limits, quotas and limit ranges on what may be reserved.

They are values and arithmetic.
"""

from berth_operator.quota.limit_range import LimitRange, why_out_of_range
from berth_operator.quota.limits import (
    Holding,
    LimitSettings,
    holding_of,
    open_slots,
    parse_limit,
    parse_namespace_limits,
    parse_namespace_tolerations,
    why_not_tolerable,
    why_over_limit,
)
from berth_operator.quota.resource_quota import (
    PodTraits,
    ResourceQuota,
    counts,
    names_class,
    traits_of,
    usage_of,
    why_refused,
)

__all__ = [
    "Holding",
    "LimitRange",
    "LimitSettings",
    "PodTraits",
    "ResourceQuota",
    "counts",
    "holding_of",
    "names_class",
    "open_slots",
    "parse_limit",
    "parse_namespace_limits",
    "parse_namespace_tolerations",
    "traits_of",
    "usage_of",
    "why_not_tolerable",
    "why_out_of_range",
    "why_over_limit",
    "why_refused",
]
