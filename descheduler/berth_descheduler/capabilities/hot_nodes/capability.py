"""The registration of the capability, which has nothing but the plugin `HotNodes`."""

from collections.abc import Mapping
from typing import ClassVar

from berth_descheduler.capabilities.hot_nodes.plugin import ARGUMENTS, HotNodes
from berth_descheduler.capabilities.hot_nodes.rule import HOT_NODES
from berth_descheduler.capability import Capability
from berth_descheduler.framework.interfaces import PluginType


class HotNodesCapability(Capability):
    """Keeps moves off nodes whose actual use is high."""

    name: ClassVar[str] = HOT_NODES
    plugin: ClassVar[PluginType] = HotNodes
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS
