"""The command line options that several programs and commands share.

Here is also what they say when something is wrong.
"""

from berth_descheduler.options.capacity import capacity_options, capacity_settings
from berth_descheduler.options.command import GroupedCommand, cluster_options, namespace_option, with_options
from berth_descheduler.options.completion import (
    complete_namespaces,
    complete_nodes,
    complete_plans,
    complete_policies,
    names_of,
)
from berth_descheduler.options.durations import duration_option, duration_option_or_none
from berth_descheduler.options.input_errors import naming_options, option_of
from berth_descheduler.options.output import (
    Output,
    all_namespaces_option,
    objects_output_option,
    output_option,
    selector_option,
    to_yaml,
    write_described,
    write_names,
)
from berth_descheduler.options.planner import planner_options
from berth_descheduler.options.policy import (
    naming_what_was_typed,
    policy_option,
    settings_to_plan,
    settings_to_run,
    settings_to_serve,
)
from berth_descheduler.options.running import cycle_settings, run_options, run_planner_settings
from berth_descheduler.options.safety import moves_option

__all__ = [
    "GroupedCommand",
    "Output",
    "all_namespaces_option",
    "capacity_options",
    "capacity_settings",
    "cluster_options",
    "complete_namespaces",
    "complete_nodes",
    "complete_plans",
    "complete_policies",
    "cycle_settings",
    "duration_option",
    "duration_option_or_none",
    "moves_option",
    "names_of",
    "namespace_option",
    "naming_options",
    "naming_what_was_typed",
    "objects_output_option",
    "option_of",
    "output_option",
    "planner_options",
    "policy_option",
    "run_options",
    "run_planner_settings",
    "selector_option",
    "settings_to_plan",
    "settings_to_run",
    "settings_to_serve",
    "to_yaml",
    "with_options",
    "write_described",
    "write_names",
]
