"""The metrics of the extender."""

from typing import Final

from prometheus_client import Counter

from berth_operator.metrics import REGISTRY

ANSWERS: Final = Counter(
    "berth_volcano_extender_answers",
    "Answers to Volcano's scheduler by verb and verdict",
    ["verb", "verdict"],
    registry=REGISTRY,
)
