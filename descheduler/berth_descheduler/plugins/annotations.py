"""Owns the annotations by which people speak of single pods, in the words of the upstream descheduler.

It does not own what comes of them (`default_evictor`). Their being there counts, whatever their values.
"""

from typing import Final

EVICT_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/evict"
"""The pod may be moved, whatever `DefaultEvictor` asks of single pods."""

NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The pod is rather left where it is."""
