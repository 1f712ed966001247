"""Arguments of the balance plugins and eviction filters that policies configure; pure, no I/O."""

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
from berth_descheduler.plugins.registry import (
    PluginRegistry,
    default_plugins,
    default_settings,
    goal_of,
    installed_plugins,
    on_demand_settings,
)

__all__ = [
    "DEFRAGMENT_DEFAULT",
    "EVICTOR_NAME",
    "LOW_DEFAULT",
    "PLUGIN_NAME",
    "DefaultEvictor",
    "DefaultEvictorArgs",
    "Defragmentation",
    "DefragmentationArgs",
    "NoBalance",
    "PluginRegistry",
    "default_plugins",
    "default_settings",
    "find_double_names",
    "goal_of",
    "installed_plugins",
    "label_selectors",
    "on_demand_settings",
    "settings_with",
    "with_defragmentation",
]
