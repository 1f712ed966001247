"""The right that each path needs before anything of its request is read.

A caller who lacks it is turned away at once, before its body is waited for. A path may need more rights, which depend
on the body; it asks for those itself, and for this one again.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from berth_descheduler.api.capability_paths import capability_paths
from berth_descheduler.api.schemas import NAME_PATTERN
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES, RESERVATIONS, Access, Resource

_NAME: Final = re.compile(NAME_PATTERN)
_PLAN: Final = re.compile(r"/v1/plans/([^/]+)(/approve|/abort|/events)?")
_OF_PLANS: Final[Mapping[tuple[str, str], str]] = {
    ("GET", ""): "get",
    ("GET", "/events"): "watch",
    ("POST", "/approve"): "patch",
    ("POST", "/abort"): "patch",
}
_OF_PATHS: Final[dict[tuple[str, str], tuple[str, Resource]]] = {
    ("POST", "/v1/runs"): ("create", MIGRATION_PLANS),
    ("GET", "/v1/plans"): ("list", MIGRATION_PLANS),
    ("GET", "/v1/fragmentation"): ("list", NODES),
    ("GET", "/v1/fragmentation/history"): ("list", NODES),
    ("GET", "/v1/nodes"): ("list", NODES),
    ("GET", "/v1/reservations"): ("list", RESERVATIONS),
    ("GET", "/v1/findings"): ("list", NODES),
    ("GET", "/v1/policies"): ("list", DESCHEDULER_POLICIES),
}


@cache
def _rights_of_paths() -> Mapping[tuple[str, str], tuple[str, Resource]]:
    return _OF_PATHS | {path: right for paths in capability_paths() for path, right in paths.rights.items()}


def needed_right(method: str, path: str) -> Access | None:
    """Return the right that a request needs whatever else it says, None for an unknown path."""
    if (right := _rights_of_paths().get((method, path))) is not None:
        verb, resource = right
        return Access(verb, resource)
    match = _PLAN.fullmatch(path)
    plan_verb = None if match is None else _OF_PLANS.get((method, match[2] or ""))
    if match is None or plan_verb is None or not _NAME.fullmatch(match[1]):
        return None
    return Access(plan_verb, MIGRATION_PLANS, match[1])
