"""Reads policy files of the upstream descheduler (`descheduler/v1alpha2`)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from berth_core import POLICY_API_VERSION, POLICY_KIND, InputError

UPSTREAM_VERSION: Final = "descheduler/v1alpha2"
_LIMITS: Final = {
    "maxNoOfPodsToEvictTotal": "maxMoves",
    "maxNoOfPodsToEvictPerNode": "maxMovesPerNode",
    "maxNoOfPodsToEvictPerNamespace": "maxMovesPerNamespace",
}
_KNOWN_FIELDS: Final = frozenset({"apiVersion", "kind", "nodeSelector", "profiles", *_LIMITS})
_POINTS: Final = ("balance", "deschedule", "filter", "preEvictionFilter")


@dataclass(frozen=True, slots=True)
class UpstreamProfile:
    """One profile of an upstream policy file, written as a policy of Berth."""

    raw: dict[str, Any]
    """The document of the policy, with the installed plugins."""

    missing: tuple[str, ...]
    """Plugins that it names and that are not installed."""

    left_out: tuple[str, ...]
    """Fields of the file that mean nothing here."""


INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HighNodeUtilization": "Defragmentation with strategy: Consolidate empties nodes",
        "LowNodeUtilization": "no plugin levels nodes: keep upstream's; HotNodes keeps moves off hot nodes",
        "RemovePodsViolatingNodeAffinity": "no plugin moves pods for their rules: keep upstream's beside Berth",
        "RemovePodsViolatingInterPodAntiAffinity": "no plugin moves pods for their rules: keep upstream's beside Berth",
        "RemovePodsViolatingNodeTaints": "no plugin moves pods for their rules: keep upstream's beside Berth",
        "RemovePodsViolatingTopologySpreadConstraint": "no plugin levels pods: keep upstream's beside Berth",
        "RemoveDuplicates": "no plugin levels pods: keep upstream's beside Berth",
        "RemovePodsHavingTooManyRestarts": "no plugin ends pods: keep upstream's beside Berth",
        "RemoveFailedPods": "no plugin ends pods: keep upstream's beside Berth",
        "PodLifeTime": "no plugin ends pods: keep upstream's beside Berth",
    }
)
"""What to use instead of plugins of the upstream descheduler that are not installed."""


def is_upstream(raw: object) -> bool:
    """Return whether a document is a policy of the upstream descheduler."""
    # Older versions as well, of which `read_upstream` can then say that they are not read.
    return isinstance(raw, Mapping) and str(raw.get("apiVersion", "")).startswith("descheduler/")


def read_upstream(raw: Mapping[str, Any], plugins: Collection[str]) -> tuple[UpstreamProfile, ...]:
    """Return the profiles of a file; raises `InputError` that names the field."""
    if raw.get("apiVersion") != UPSTREAM_VERSION:
        raise InputError("apiVersion", raw.get("apiVersion"), f"{UPSTREAM_VERSION}, or {POLICY_API_VERSION}")
    profiles = raw.get("profiles")
    if not isinstance(profiles, list) or not profiles or not all(isinstance(profile, Mapping) for profile in profiles):
        raise InputError("profiles", profiles, "a list of profiles")
    left_out = tuple(sorted(set(raw) - _KNOWN_FIELDS))
    return tuple(
        UpstreamProfile(_as_policy(raw, profile, plugins), tuple(_missing(profile, plugins)), left_out)
        for profile in profiles
    )


def not_installed(place: str, missing: Collection[str], plugins: Collection[str]) -> InputError:
    """Return the error about named plugins that are not installed."""
    named = (f"{plugin} ({INSTEAD[plugin]})" if plugin in INSTEAD else plugin for plugin in missing)
    text = f"with plugins that are not installed: {', '.join(named)}"
    return InputError(place, None, f"only {', '.join(sorted(plugins))}", said=text)


def _as_policy(raw: Mapping[str, Any], profile: Mapping[str, Any], plugins: Collection[str]) -> dict[str, Any]:
    limits = {
        our_field: raw[their_field] for their_field, our_field in _LIMITS.items() if raw.get(their_field) is not None
    }
    selector = {"nodeSelector": raw["nodeSelector"]} if raw.get("nodeSelector") else {}
    spec = {**selector, "profiles": [_with_plugins(profile, plugins)], **({"limits": limits} if limits else {})}
    profile_name = profile.get("name") or "profile"
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": POLICY_KIND,
        "metadata": {"name": str(profile_name).lower()},
        "spec": spec,
    }


def _with_plugins(profile: Mapping[str, Any], plugins: Collection[str]) -> dict[str, Any]:
    """Return a profile with the installed plugins only; unreadable parts stay, for the parser to refuse."""
    configs, extension_points = profile.get("pluginConfig"), profile.get("plugins")
    filtered_profile = dict(profile)
    if isinstance(configs, list):
        filtered_profile["pluginConfig"] = [
            config for config in configs if _name_of(config) not in set(_missing(profile, plugins))
        ]
    if isinstance(extension_points, Mapping):
        filtered_profile["plugins"] = {
            point: _installed_only(lists, plugins)
            for point, lists in extension_points.items()
            if point in _POINTS or _installed_only(lists, plugins)
        }
    return filtered_profile


def _installed_only(lists: object, plugins: Collection[str]) -> object:
    """Return an extension point's lists with the installed plugins only, without lists that are then empty."""
    if not isinstance(lists, Mapping):
        return lists
    kept_lists = {
        name: [plugin for plugin in listed if plugin in plugins or plugin == "*"]
        if isinstance(listed, list)
        else listed
        for name, listed in lists.items()
    }
    return {name: listed for name, listed in kept_lists.items() if listed}


def _missing(profile: Mapping[str, Any], plugins: Collection[str]) -> Iterator[str]:
    """Yield the names of a profile's missing plugins, each once."""
    names = dict.fromkeys(_names(profile))
    yield from (plugin_name for plugin_name in names if plugin_name not in plugins and plugin_name != "*")


def _names(profile: Mapping[str, Any]) -> Iterator[str]:
    extension_points = profile.get("plugins")
    for lists in extension_points.values() if isinstance(extension_points, Mapping) else ():
        enabled = lists.get("enabled") if isinstance(lists, Mapping) else None
        yield from (plugin for plugin in enabled if isinstance(plugin, str)) if isinstance(enabled, list) else ()
    configs = profile.get("pluginConfig")
    for config in configs if isinstance(configs, list) else ():
        if plugin_name := _name_of(config):
            yield plugin_name


def _name_of(config: object) -> str:
    plugin_name = config.get("name") if isinstance(config, Mapping) else None
    return plugin_name if isinstance(plugin_name, str) else ""
