"""The planner's settings and plugins as they are where no policy says otherwise."""

from dataclasses import replace
from typing import Any

from berth_descheduler.framework.runtime import PluginSet
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins.default_evictor import default_plugins


def planner_settings(**fields: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the settings
    return PlannerSettings(**{"plugins": default_plugins(), **fields})


def plugin_set(**fields: Any) -> PluginSet:  # noqa: ANN401 - fields of the set
    return replace(default_plugins(), **fields)
