"""Owns the list of the plugins that come with Berth.

It does not own those of other distributions (`registry`).
"""

from collections.abc import Mapping
from typing import Final

from berth_descheduler.planner.balance import Defragmentation
from berth_descheduler.plugins.default_evictor import EVICTOR_NAME, DefaultEvictor
from berth_descheduler.plugins.defragmentation import PLUGIN_NAME
from berth_descheduler.plugins.protocols import PluginType
from berth_descheduler.plugins.registry import PluginRegistry

OWN_PLUGINS: Final[Mapping[str, PluginType]] = {PLUGIN_NAME: Defragmentation, EVICTOR_NAME: DefaultEvictor}


def installed_plugins() -> PluginRegistry:
    """Return the plugins that a policy can name: Berth's own and those that are installed beside it."""
    return PluginRegistry.discover(OWN_PLUGINS)
