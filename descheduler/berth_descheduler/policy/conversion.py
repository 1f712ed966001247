"""Converts policy files of the upstream descheduler to DeschedulerPolicies.

A converted policy moves no pod that the file keeps. So what only widens the choice of pods is left out with a note, and
what narrows it and has no counterpart here is an error.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from berth_core import POLICY_KIND, InputError, RunMode, printable_line, refuse_unknown
from berth_descheduler.plugins import EVICTOR_NAME, PLUGIN_NAME, PluginRegistry
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.parsing import RunDefaults, read_policy
from berth_descheduler.policy.upstream import INSTEAD, UpstreamProfile, is_upstream, read_upstream

CONVERTED_PLUGIN: Final = "HighNodeUtilization"
"""The upstream plugin that becomes another one here; all others are installed here or left out."""

_CONVERTED_ARGUMENTS: Final = frozenset({"thresholds", "numberOfNodes", "evictableNamespaces", "metricsUtilization"})
_FILTERS: Final = ("filter", "preEvictionFilter")
_MOVERS: Final = ("deschedule", "balance")
_MOST_MOVES: Final = 1000
_WHOLE: Final = 100
_NEVER_MOVED: Final = {
    "evictDaemonSetPods": "DaemonSetPods",
    "evictSystemCriticalPods": "SystemCriticalPods",
    "evictFailedBarePods": "FailedBarePods",
}
"""Flags that `DefaultEvictor` refuses here, with the names of the protections that they switch off."""
_STAYS: Final = "left out: such pods always stay"


@dataclass(frozen=True, slots=True)
class ConvertedProfile:
    """What became of one profile of the file."""

    name: str
    """As the file has it."""

    policy: Mapping[str, Any] | None
    """The DeschedulerPolicy in builtins; None where no plugin is left that moves pods."""

    notes: tuple[str, ...]
    """How the policy differs from the file, one line each, the plugin or field first."""


def convert_upstream(raw: object, registry: PluginRegistry) -> tuple[ConvertedProfile, ...]:
    """Return the policies of an upstream file; every one of them can be run.

    Raises `InputError` for a file that is not of the upstream descheduler, and for what narrows the choice of pods and
    cannot be carried over.
    """
    if not isinstance(raw, Mapping) or not is_upstream(raw):
        is_ours = isinstance(raw, Mapping) and raw.get("kind") == POLICY_KIND
        description = "a DeschedulerPolicy of Berth already" if is_ours else ""
        raise InputError("the document", raw, "a policy of the upstream descheduler", said=description)
    read_upstream(raw, registry.names)
    converted: list[ConvertedProfile] = []
    for index, profile in enumerate(raw["profiles"]):
        try:
            converted.append(_convert(raw, profile, registry))
        except InputError as error:
            raise error.within(f"profiles[{index}]") from error
    return tuple(_with_own_names(converted))


def _with_own_names(profiles: list[ConvertedProfile]) -> Iterator[ConvertedProfile]:
    """Yield the profiles, whose policies get names that no earlier one has."""
    names: set[str] = set()
    for profile in profiles:
        if profile.policy is not None:
            policy_name = base_name = profile.policy["metadata"]["name"]
            number = 1
            while policy_name in names:
                number += 1
                policy_name = f"{base_name}-{number}"
            names.add(policy_name)
            profile.policy["metadata"]["name"] = policy_name
        yield profile


def _convert(raw: Mapping[str, Any], raw_profile: Mapping[str, Any], registry: PluginRegistry) -> ConvertedProfile:
    profile: dict[str, Any] = deepcopy(dict(raw_profile))
    _refuse_missing_filters(profile, registry)
    notes = [*_pack_nodes(profile), *_keep_what_always_stays(profile)]
    (upstream_profile,) = read_upstream({**raw, "profiles": [profile]}, registry.names)
    notes += _left_out(upstream_profile)
    policy = _named(upstream_profile.raw)
    notes += _lower_limits(policy["spec"].get("limits", {}))
    profile_name = printable_line(str(raw_profile.get("name") or ""))
    if not any(_enabled(policy["spec"]["profiles"][0], point) for point in _MOVERS):
        return ConvertedProfile(profile_name, None, tuple(notes))
    # The file's own runs evict at once; what its policy would do here has to be looked at first.
    policy["spec"]["mode"] = RunMode.PLAN.value
    read_policy(decode_policy(policy), RunDefaults(), registry)
    return ConvertedProfile(profile_name, policy, tuple(notes))


def _named(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy with a name that Kubernetes accepts."""
    policy_name = re.sub(r"[^a-z0-9]+", "-", raw["metadata"]["name"]).strip("-") or "profile"
    (profile,) = raw["spec"]["profiles"]
    spec = {**raw["spec"], "profiles": [{**profile, "name": profile.get("name") or policy_name}]}
    return {**raw, "metadata": {"name": policy_name[:200].rstrip("-")}, "spec": spec}


def _refuse_missing_filters(profile: Mapping[str, Any], registry: PluginRegistry) -> None:
    for point in _FILTERS:
        for index, plugin in enumerate(_enabled(profile, point)):
            if plugin not in registry.names:
                expected = "a filter that is installed: without it pods would move that it keeps"
                raise InputError(f"plugins.{point}.enabled[{index}]", plugin, expected)


def _pack_nodes(profile: dict[str, Any]) -> Iterator[str]:
    """Put `Defragmentation` in the place of the plugin that packs nodes, and yield the differences."""
    balance = _enabled(profile, "balance")
    if CONVERTED_PLUGIN not in balance:
        return
    configs = profile.get("pluginConfig") or []
    for number, config in enumerate(configs):
        if not isinstance(config, Mapping):
            raise InputError(f"pluginConfig[{number}]", config, "a mapping with the name of a plugin and its args")
    index = next((index for index, config in enumerate(configs) if config.get("name") == CONVERTED_PLUGIN), None)
    if PLUGIN_NAME in balance:
        yield f"{CONVERTED_PLUGIN}: left out, as {PLUGIN_NAME} is enabled beside it"
        return
    place = f"pluginConfig[{index}].args"
    args = (configs[index].get("args") if index is not None else None) or {}
    if not isinstance(args, Mapping) or not isinstance(args.get("thresholds"), Mapping) or not args["thresholds"]:
        raise InputError(f"{CONVERTED_PLUGIN}.thresholds", None, "percentages by resource", said="missing")
    if odd := [name for name in args["thresholds"] if not isinstance(name, str)]:
        raise InputError(f"{CONVERTED_PLUGIN}.thresholds", odd[0], "names of resources, such as cpu")
    refuse_unknown(place, args, _CONVERTED_ARGUMENTS)
    thresholds = dict(args["thresholds"])
    resource = _ordering_resource(thresholds)
    defragmentation = {
        "strategy": "Threshold",
        "wholeNodes": True,
        "resourceType": resource,
        "lowThresholds": thresholds,
        "defragmentThresholds": {resource: thresholds[resource]},
        "protectionThresholds": {resource: _WHOLE},
        **{name: args[name] for name in ("numberOfNodes", "evictableNamespaces") if args.get(name)},
    }
    profile["pluginConfig"] = [
        *(config for config in configs if config.get("name") not in {CONVERTED_PLUGIN, PLUGIN_NAME}),
        {"name": PLUGIN_NAME, "args": defragmentation},
    ]
    profile["plugins"]["balance"]["enabled"] = [PLUGIN_NAME if name == CONVERTED_PLUGIN else name for name in balance]
    yield (
        f"{CONVERTED_PLUGIN}: became {PLUGIN_NAME} with its thresholds, which empties a node whole or leaves it alone; "
        f"strategy: Consolidate instead, without thresholds, empties the most nodes"
    )
    if args.get("metricsUtilization"):
        yield (
            f"{CONVERTED_PLUGIN}.metricsUtilization: left out, as plans are made of requests; "
            f"the filter HotNodes keeps moves off nodes that are used too much"
        )


def _ordering_resource(thresholds: Mapping[str, Any]) -> str:
    """Return the resource by which nodes are ordered: cpu or memory, where there is a threshold for it."""
    return str(next((resource for resource in ("cpu", "memory") if resource in thresholds), next(iter(thresholds))))


def _keep_what_always_stays(profile: dict[str, Any]) -> Iterator[str]:
    """Take out the arguments that would move what is never moved, and yield a note for each."""
    for config in profile.get("pluginConfig") or []:
        args = config.get("args")
        if config.get("name") != EVICTOR_NAME or not isinstance(args, dict):
            continue
        for flag in _NEVER_MOVED:
            if args.get(flag) is True:
                del args[flag]
                yield f"{EVICTOR_NAME}.{flag}: {_STAYS}"
        protections = args.get("podProtections")
        disabled = protections.get("defaultDisabled") if isinstance(protections, dict) else None
        if not isinstance(disabled, list):
            continue
        for protection in _NEVER_MOVED.values():
            if protection in disabled:
                disabled.remove(protection)
                yield f"{EVICTOR_NAME}.podProtections.defaultDisabled {protection}: {_STAYS}"


def _left_out(profile: UpstreamProfile) -> Iterator[str]:
    for plugin in profile.missing:
        yield f"{plugin}: left out; {INSTEAD.get(plugin, 'no plugin of this name is installed')}"
    for field in profile.left_out:
        yield f"{field}: left out; it means nothing here"


def _lower_limits(limits: dict[str, Any]) -> Iterator[str]:
    max_moves = limits.get("maxMoves")
    if isinstance(max_moves, int) and max_moves > _MOST_MOVES:
        limits["maxMoves"] = _MOST_MOVES
        yield f"maxNoOfPodsToEvictTotal: {max_moves} became maxMoves: {_MOST_MOVES}, the most that a plan may have"


def _enabled(profile: Mapping[str, Any], point: str) -> list[str]:
    """Return the plugins that a profile enables at an extension point; none where that cannot be read."""
    points = profile.get("plugins")
    lists = points.get(point) if isinstance(points, Mapping) else None
    enabled = lists.get("enabled") if isinstance(lists, Mapping) else None
    return [name for name in enabled if isinstance(name, str)] if isinstance(enabled, list) else []
