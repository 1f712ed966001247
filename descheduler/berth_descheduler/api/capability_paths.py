"""The paths that capabilities bring, and what the others have to know of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any

import msgspec
from fastapi import APIRouter

from berth_descheduler.api.context import ApiContext
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_kube import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityPaths:
    """The paths of one capability."""

    add_to: Callable[[APIRouter, ApiContext], None]
    rights: Mapping[tuple[str, str], tuple[str, Resource]]
    """By method and path, the verb and resource that a request needs before anything of it is read."""

    documents: tuple[type[msgspec.Struct], ...]
    """What the paths answer."""

    examples: Mapping[str, Mapping[str, Any]]
    """By operation: `request` (method and path with its query), `body` where one is sent, and `answer`."""


@cache
def capability_paths() -> tuple[CapabilityPaths, ...]:
    """Return the paths of all capabilities that have some, in the order of the registry."""
    return tuple(resolve_name(capability.paths) for capability in EVERY_CAPABILITY if capability.paths)
