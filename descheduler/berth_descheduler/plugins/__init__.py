"""Arguments of the balance plugins and eviction filters that policies configure.

Pure, no I/O.
"""

from berth_descheduler.plugins.default_evictor import EVICTOR_NAME, DefaultEvictor, label_selectors
from berth_descheduler.plugins.default_evictor_args import DefaultEvictorArgs
from berth_descheduler.plugins.defragmentation import (
    DEFRAGMENT_DEFAULT,
    LOW_DEFAULT,
    PLUGIN_NAME,
    Defragmentation,
    DefragmentationArgs,
    NoBalance,
    find_double_names,
    settings_with,
    with_defragmentation,
)
from berth_descheduler.plugins.node_drain import NODE_DRAIN, NodeDrain, drain_of
from berth_descheduler.plugins.registry import (
    PluginRegistry,
    default_plugins,
    default_settings,
    drain_settings,
    goal_of,
    installed_plugins,
)

__all__ = [
    "DEFRAGMENT_DEFAULT",
    "EVICTOR_NAME",
    "LOW_DEFAULT",
    "NODE_DRAIN",
    "PLUGIN_NAME",
    "DefaultEvictor",
    "DefaultEvictorArgs",
    "Defragmentation",
    "DefragmentationArgs",
    "NoBalance",
    "NodeDrain",
    "PluginRegistry",
    "default_plugins",
    "default_settings",
    "drain_of",
    "drain_settings",
    "find_double_names",
    "goal_of",
    "installed_plugins",
    "label_selectors",
    "settings_with",
    "with_defragmentation",
]
