"""Reads policy files of the upstream descheduler (`descheduler/v1alpha2`)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_core import POLICY_API_VERSION, POLICY_KIND, InputError

UPSTREAM_VERSION: Final = "descheduler/v1alpha2"
_LIMITS: Final = {
    "maxNoOfPodsToEvictTotal": "maxMoves",
    "maxNoOfPodsToEvictPerNode": "maxMovesPerNode",
    "maxNoOfPodsToEvictPerNamespace": "maxMovesPerNamespace",
}
_READ: Final = frozenset({"apiVersion", "kind", "nodeSelector", "profiles", *_LIMITS})
_POINTS: Final = ("balance", "deschedule", "filter", "preEvictionFilter")


@dataclass(frozen=True, slots=True)
class UpstreamProfile:
    """One profile of such a file, as a policy of ours."""

    raw: dict[str, Any]
    """The document of the policy, with the plugins that there are."""

    missing: tuple[str, ...]
    """Plugins that it names and that there are not."""

    left_out: tuple[str, ...]
    """Fields of the file that mean nothing here."""


def is_upstream(raw: object) -> bool:
    """Return whether a document is a policy of the upstream descheduler."""
    return isinstance(raw, Mapping) and str(raw.get("apiVersion", "")).startswith("descheduler/")


def read_upstream(raw: Mapping[str, Any], plugins: Collection[str]) -> tuple[UpstreamProfile, ...]:
    """Return the profiles of a file; raises `InputError` that names the field."""
    if raw.get("apiVersion") != UPSTREAM_VERSION:
        raise InputError("apiVersion", raw.get("apiVersion"), f"{UPSTREAM_VERSION}, or {POLICY_API_VERSION}")
    profiles = raw.get("profiles")
    if not isinstance(profiles, list) or not profiles or not all(isinstance(one, Mapping) for one in profiles):
        raise InputError("profiles", profiles, "a list of profiles")
    left_out = tuple(sorted(set(raw) - _READ))
    return tuple(
        UpstreamProfile(_as_policy(raw, profile, plugins), tuple(_missing(profile, plugins)), left_out)
        for profile in profiles
    )


def not_installed(place: str, missing: Collection[str], plugins: Collection[str]) -> InputError:
    """Return the error of named plugins that are not installed."""
    said = f"with plugins that are not installed: {', '.join(missing)}"
    return InputError(place, None, f"only {', '.join(sorted(plugins))}", said=said)


def _as_policy(raw: Mapping[str, Any], profile: Mapping[str, Any], plugins: Collection[str]) -> dict[str, Any]:
    limits = {ours: raw[theirs] for theirs, ours in _LIMITS.items() if raw.get(theirs) is not None}
    selector = {"nodeSelector": raw["nodeSelector"]} if raw.get("nodeSelector") else {}
    spec = {**selector, "profiles": [_with_plugins(profile, plugins)], **({"limits": limits} if limits else {})}
    name = profile.get("name") or "profile"
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": POLICY_KIND,
        "metadata": {"name": str(name).lower()},
        "spec": spec,
    }


def _with_plugins(profile: Mapping[str, Any], plugins: Collection[str]) -> dict[str, Any]:
    """Return a profile with the installed plugins.

    Leaves unreadable parts for the parser to refuse.
    """
    configs, points = profile.get("pluginConfig"), profile.get("plugins")
    found = dict(profile)
    if isinstance(configs, list):
        found["pluginConfig"] = [one for one in configs if _name_of(one) not in set(_missing(profile, plugins))]
    if isinstance(points, Mapping):
        found["plugins"] = {
            point: _only(lists, plugins) for point, lists in points.items() if point in _POINTS or _only(lists, plugins)
        }
    return found


def _only(lists: object, plugins: Collection[str]) -> object:
    """Return an extension point's lists with the installed plugins alone.

    Leaves out lists that are empty then.
    """
    if not isinstance(lists, Mapping):
        return lists
    kept = {
        name: [one for one in listed if one in plugins or one == "*"] if isinstance(listed, list) else listed
        for name, listed in lists.items()
    }
    return {name: listed for name, listed in kept.items() if listed}


def _missing(profile: Mapping[str, Any], plugins: Collection[str]) -> Iterator[str]:
    """Yield the names of a profile's missing plugins, each once."""
    names = dict.fromkeys(_names(profile))
    yield from (name for name in names if name not in plugins and name != "*")


def _names(profile: Mapping[str, Any]) -> Iterator[str]:
    points = profile.get("plugins")
    for lists in points.values() if isinstance(points, Mapping) else ():
        enabled = lists.get("enabled") if isinstance(lists, Mapping) else None
        yield from (one for one in enabled if isinstance(one, str)) if isinstance(enabled, list) else ()
    configs = profile.get("pluginConfig")
    for config in configs if isinstance(configs, list) else ():
        if name := _name_of(config):
            yield name


def _name_of(config: object) -> str:
    name = config.get("name") if isinstance(config, Mapping) else None
    return name if isinstance(name, str) else ""
