"""Owns the annotations by which people speak of single pods: the words of the upstream descheduler and of autoscalers.

It does not own what comes of them (`default_evictor`, `movable`). Of the descheduler's their being there counts,
whatever their values.
"""

from typing import Final

EVICT_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/evict"
"""The pod may be moved, whatever `DefaultEvictor` asks of single pods."""

NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The pod is rather left where it is."""

SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""With the value `false` the pod stays."""

DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""With the value `true` the pod stays."""
