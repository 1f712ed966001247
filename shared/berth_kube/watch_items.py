"""What a watch yields: lists and changes."""

import math
from dataclasses import dataclass
from typing import Generic, TypeAlias

from berth_kube.decoding import T


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects that exist now; others that were known are gone."""

    items: tuple[T, ...]
    resource_version: str
    began: float = -math.inf
    """Monotonic time at which the list was requested: it has everything that was stored before."""
    restored: bool = False
    """Whether versions went back, so that the list belongs to another history: etcd was restored from a backup."""


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """An object that was created or changed."""

    item: T
    added: bool


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    """An object that is gone, in its last version."""

    item: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing changed up to this resourceVersion."""

    resource_version: str


WatchItem: TypeAlias = Listed[T] | Changed[T] | Removed[T] | Bookmark
