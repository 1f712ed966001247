"""Lists the capabilities of the operator in the order in which they act.

Nothing else of the kernel imports one, so that without its line and its folder the operator is whole.
"""

from typing import Final

from berth_kube import KubeClient
from berth_operator.capabilities.evictions.act import Evictions
from berth_operator.capabilities.extender.act import Extender
from berth_operator.capabilities.queues.act import Queues
from berth_operator.capabilities.traces.act import Traces
from berth_operator.capabilities.windows.act import Windows
from berth_operator.capabilities.zones.act import Zones
from berth_operator.reservation.rules import JoinedRules
from berth_operator.runtime.capability import Capability

CAPABILITIES: Final[tuple[type[Capability], ...]] = (
    Windows,
    Zones,
    Queues,
    Evictions,
    Extender,
    Traces,
)


def build_rules(client: KubeClient) -> JoinedRules:
    """Return the rules of all capabilities as one."""
    rules = (capability.build_rule(client) for capability in CAPABILITIES)
    return JoinedRules(rule for rule in rules if rule is not None)
