"""The metrics of evictions by others."""

from typing import Final

from prometheus_client import Counter

from berth_operator.metrics import REGISTRY

EVICTIONS: Final = Counter(
    "berth_evictions",
    "Evictions by others of pods that ask for a replacement first, by result: each answer, and what became of the pod",
    ["result"],
    registry=REGISTRY,
)
