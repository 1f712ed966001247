"""What API objects of all kinds have: names, labels, owners, quantities; label selectors, and namespaces."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

RawQuantity: TypeAlias = str | int | float
"""A quantity as written; the API server writes text, people also write bare numbers."""

Quantities: TypeAlias = Mapping[str, RawQuantity]
"""Resource name to quantity."""


# Without gc: the collector would walk every object of a snapshot again and again, and none is in a cycle.
class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all structs here: unknown fields are skipped, defaults are not encoded."""


@lru_cache(maxsize=1024)  # plans ask ten times for every pod
def api_group(api_version: str) -> str:
    """Return the API group of an `apiVersion`; the core group is ""."""
    return api_version.rpartition("/")[0]


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The object that owns another; `controller` marks the one that recreates it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False

    @property
    def group_kind(self) -> tuple[str, str]:
        """Return API group and kind; the core group is ""."""
        return api_group(self.api_version), self.kind


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """Identity of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    resource_version: str = ""
    generation: int | None = None
    unreadable: str = ""
    """Berth's own, in memory and in snapshots: why the rest cannot be decoded."""

    @property
    def age_order(self) -> tuple[str, str]:
        """Return the sort key by age: the API server dates objects by the second, so the uid decides between equals."""
        return self.creation_timestamp or "", self.uid


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """One expression of a selector; `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """A label selector, whose parts are ANDed; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    """Phase of a namespace: Active or Terminating."""

    phase: str = ""


class Namespace(ApiStruct, frozen=True, kw_only=True):
    """A namespace with its labels."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()

    @property
    def is_terminating(self) -> bool:
        """Return whether the namespace is being deleted; nothing can be created in it any more."""
        return self.metadata.deletion_timestamp is not None or self.status.phase == "Terminating"
