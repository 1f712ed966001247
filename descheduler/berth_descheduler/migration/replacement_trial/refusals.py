"""What an error of the API server says about the pod that was tried; without I/O."""

import re
from dataclasses import dataclass
from typing import Any, Final

from berth_core import InputError, PodSpec, ResourceAmounts, effective_requests
from berth_core.decoding import convert
from berth_core.object_lists import RawObject
from berth_kube import ForbiddenError, InvalidObjectError, KubeError, is_missing_right, without_pod_name

_DENIED: Final = re.compile(r"denied (the )?request")
"""How webhooks and policies refuse, with whichever status code they have chosen."""

_QUOTA: Final = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")
"""Each amount lists only what the pod would exceed (`pkg/quota/admission`), as `name=quantity`, separated by commas."""

_PODS: Final = frozenset({"pods", "count/pods"})


@dataclass(frozen=True, slots=True)
class Denial:
    """The API server would refuse the pod, for this reason."""

    message: str


@dataclass(frozen=True, slots=True)
class FullQuota:
    """A quota has no room for the pod beside the one that leaves, and has once that is gone.

    Quotas are asked last, so all other admission has let the pod through.
    """


@dataclass(frozen=True, slots=True)
class Unknown:
    """The error says nothing about the pod."""

    message: str


def read_error(error: KubeError, old_pod: RawObject) -> Denial | FullQuota | Unknown:
    """Return what a final error to a dry run says.

    A webhook that has side effects is not asked by dry runs, which the API server answers with 400 (`admission webhook
    "..." does not support dry run`): what it says to the real pod is not known. A missing right says nothing either.
    """
    if _DENIED.search(error.message):
        return Denial(without_pod_name(error.message))
    if is_missing_right(error) or not isinstance(error, ForbiddenError | InvalidObjectError):
        return Unknown(error.message)
    if frees_quota(error.message, old_pod):
        return FullQuota()
    return Denial(without_pod_name(error.message))


def frees_quota(message: str, old_pod: RawObject) -> bool:
    """Return whether the quota that a message names has room for the new pod once the old one is gone."""
    match = _QUOTA.search(message)
    if match is None:
        return False
    requested, used, limited = (dict(_pairs(text)) for text in match.groups()[1:])
    try:
        given_back = {name: _given_back(name, old_pod) for name in requested}
        return all(
            _amount(name, used[name]) - given_back[name] + _amount(name, quantity) <= _amount(name, limited[name])
            for name, quantity in requested.items()
        )
    except (InputError, KeyError):
        return False


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, quantity) for name, _, quantity in (pair.partition("=") for pair in text.split(","))]


def _given_back(name: str, old_pod: RawObject) -> int:
    """Return how much of a quota's amount a pod has."""
    if name in _PODS:
        return 1
    spec = old_pod["spec"]
    # `effective_requests` knows how init containers, sidecars and overhead add up, which is the same for limits.
    if name.startswith("limits."):
        spec = {**spec, **{part: [_by_limits(entry) for entry in spec.get(part) or ()] for part in _CONTAINERS}}
    return effective_requests(convert(spec, PodSpec)).get(_resource(name))


_CONTAINERS: Final = ("containers", "initContainers")


def _by_limits(container: RawObject) -> dict[str, Any]:
    """Return a container that requests its limits."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {**container, "resources": {"requests": limits}}


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _amount(name: str, quantity: str) -> int:
    return ResourceAmounts.from_quantities({_resource(name): quantity}).get(_resource(name))
