"""The operator's zones around an API server in memory."""

from dataclasses import dataclass, field

import pytest

from berth_operator.capabilities.zones.act import Zones
from berth_operator.capabilities.zones.preemptable_pods import PreemptablePods
from operator_harness import OperatorHarness, build_harness


@dataclass
class ZoneHarness(OperatorHarness):
    """The operator's parts with the zones that they know."""

    zones: Zones = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.zones = Zones(self.kernel)

    def forget_counts(self) -> None:
        """Have the zones count pods and let them in anew, as they do after some seconds."""
        self.zones._counts.clear()
        self.zones._pods = PreemptablePods(self.context)


@pytest.fixture
def harness() -> ZoneHarness:
    return build_harness(ZoneHarness)
