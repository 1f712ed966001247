"""Lists of API objects in JSON (`v1` List), the file format of a snapshot."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from berth_core.clock import format_timestamp, read_timestamp
from berth_core.decoding import Decoder
from berth_core.depths import MAX_DEPTH, is_cut
from berth_core.errors import InputError
from berth_core.gated_queues import QUEUE_API_VERSION, GatedQueue, LocalQueue
from berth_core.long_integers import cut_long_integers, has_cut_integer
from berth_core.objects.disruption_budgets import PodDisruptionBudget
from berth_core.objects.metadata import ApiStruct, Namespace, api_group
from berth_core.objects.nodes import Node
from berth_core.objects.pods import Pod, PriorityClass
from berth_core.pod_groups import (
    POD_GROUP_API_VERSIONS,
    POD_GROUP_KIND,
    POD_GROUP_WORKLOAD_API_VERSION,
    POD_GROUP_WORKLOAD_KIND,
    VOLCANO_JOB_API_VERSION,
    VOLCANO_JOB_KIND,
    VOLCANO_POD_GROUP_API_VERSION,
    PodGroup,
    PodGroupWorkload,
    VolcanoJob,
)
from berth_core.queues import QUEUE_KIND, VOLCANO_QUEUE_API_VERSION, QueueObject
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation
from berth_core.snapshot_kinds import SnapshotKind, is_for_surges, known_kinds, lacking_for_surges
from berth_core.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from berth_core.unreadable import mark, readable_body, stand_in, why_unreadable, with_metadata
from berth_core.workloads import ControllerRevision, Workload


@dataclass(frozen=True, slots=True, order=True)
class ObjectKind:
    """A kind that Berth itself does not read, for plugins."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = False
    only: str = ""
    """The name of the one object in Berth's own namespace that is read; "" if all objects of the kind are."""

    @property
    def name(self) -> str:
        """Return the kind's name in a snapshot, whatever the version: kind and group, and which object is read."""
        kind_name = _kind_name(self.kind, self.group)
        return f"{kind_name}/{self.only}" if self.only else kind_name


def _kind_name(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind


RawObject: TypeAlias = Mapping[str, Any]
"""An object as the API server has it."""

Listed: TypeAlias = (
    Node
    | Pod
    | Workload
    | PodDisruptionBudget
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | VolumeAttachment
    | ControllerRevision
    | PriorityClass
    | Namespace
    | Reservation
    | VolcanoJob
    | PodGroup
    | PodGroupWorkload
    | QueueObject
    | GatedQueue
    | LocalQueue
)
"""An object of a kind that Berth reads."""

_EXPECTED: Final = "a v1 List in JSON, as `berth snapshot` writes it"
_TYPES: Final[Mapping[tuple[str, str], type[Listed]]] = {
    ("v1", "Node"): Node,
    ("v1", "Pod"): Pod,
    ("v1", "Namespace"): Namespace,
    ("v1", "ReplicationController"): Workload,
    ("v1", "PersistentVolume"): PersistentVolume,
    ("v1", "PersistentVolumeClaim"): PersistentVolumeClaim,
    ("policy/v1", "PodDisruptionBudget"): PodDisruptionBudget,
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    ("storage.k8s.io/v1", "StorageClass"): StorageClass,
    ("storage.k8s.io/v1", "CSINode"): CSINode,
    ("storage.k8s.io/v1", "VolumeAttachment"): VolumeAttachment,
    ("apps/v1", "ReplicaSet"): Workload,
    ("apps/v1", "StatefulSet"): Workload,
    ("apps/v1", "Deployment"): Workload,
    ("apps/v1", "DaemonSet"): Workload,
    ("apps/v1", "ControllerRevision"): ControllerRevision,
    ("batch/v1", "Job"): Workload,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): Workload,
    (RESERVATION_API_VERSION, RESERVATION_KIND): Reservation,
    (VOLCANO_JOB_API_VERSION, VOLCANO_JOB_KIND): VolcanoJob,
    (VOLCANO_POD_GROUP_API_VERSION, POD_GROUP_KIND): PodGroup,
    **{(api_version, POD_GROUP_KIND): PodGroup for api_version in POD_GROUP_API_VERSIONS},
    (POD_GROUP_WORKLOAD_API_VERSION, POD_GROUP_WORKLOAD_KIND): PodGroupWorkload,
    (VOLCANO_QUEUE_API_VERSION, QUEUE_KIND): QueueObject,
    (QUEUE_API_VERSION, QUEUE_KIND): GatedQueue,
    **{(api_version, "LocalQueue"): LocalQueue for api_version in ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2")},
}
_SAYING_THEIR_KIND: Final = (Workload, PodGroup, QueueObject)
"""Types of several kinds or groups, which carry their kind themselves."""
_KINDS: Final = {type_: kind for kind, type_ in _TYPES.items() if type_ not in _SAYING_THEIR_KIND}
_DECODERS: Final = {kind: Decoder(type_) for kind, type_ in _TYPES.items()}
_AT_PATH: Final = re.compile(r"(?P<complaint>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
STAND_INS: Final = (Node, Pod, Reservation, QueueObject, GatedQueue, LocalQueue)
"""Kinds of which the readable part is planned on; an unreadable object of another kind is left out."""
_LIST_LEVELS: Final = 2
"""How much deeper an object is nested in a List."""
_LONGEST_WHY: Final = 300
"""A field's path has no bound where a kind has no schema."""


_WRONG_TYPE: Final = re.compile(r"Expected `(?P<expected>.*)`, got `(?P<got>.*)`")


class _Name(ApiStruct, frozen=True, kw_only=True):
    """Name of an object, and the reason if it was unreadable when the file was written."""

    namespace: str = ""
    name: str = ""
    unreadable: str = ""


class _ObjectIdentity(ApiStruct, frozen=True, kw_only=True):
    """Identity of an object, decoded before the rest."""

    api_version: str = ""
    kind: str = ""
    metadata: _Name = _Name()


class _List(ApiStruct, frozen=True, kw_only=True):
    """A List whose items are not read yet."""

    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    kinds: tuple[str, ...] = ()
    """The kinds that the List was made of, even without objects; empty if it does not say."""
    beside: tuple[str, ...] = ()
    """Names of kinds that plugins read, and that the cluster served."""
    read_at: str = ""
    """When these were read."""


class _Kind(ApiStruct, frozen=True, kw_only=True):
    """Kind of an object whose metadata cannot be read."""

    api_version: str = ""
    kind: str = ""


_LIST_DECODER: Final = Decoder(_List, outer_levels=_LIST_LEVELS)
_HEAD_DECODER: Final = Decoder(_ObjectIdentity)
_KIND_DECODER: Final = Decoder(_Kind)


@dataclass(frozen=True, slots=True)
class DecodedList:
    """The objects of a List in order, and its kinds."""

    objects: tuple[Listed, ...]
    kinds: tuple[str, ...]
    beside: Mapping[str, tuple[RawObject, ...]] = field(default_factory=dict)
    """Objects of the kinds that plugins read, by the name of the kind."""

    read_at: datetime | None = None
    """When these were read; None if the List does not say."""


def decode_list(raw: bytes) -> DecodedList:
    """Return the objects of a List.

    Kinds that Berth does not read are left out. Raises `InputError` with the fault of the file, or with the object and
    the field.
    """
    listed = _decode_outside(raw)
    if listed.kind != "List" or listed.api_version != "v1":
        description = f"{listed.kind or 'an object without a kind'} of apiVersion {listed.api_version or '(none)'}"
        raise InputError("the snapshot", None, _EXPECTED, said=f"a {description}" if listed.kind else description)
    if listed.items is msgspec.UNSET:
        raise InputError("the snapshot's field items", None, "the list of objects", said="missing")
    objects = (_decode_item(index, item) for index, item in enumerate(listed.items or ()))
    typed = tuple(obj for obj in objects if obj is not None)
    beside: dict[str, list[RawObject]] = {name: [] for name in listed.beside}
    for item in (listed.items or ()) if beside else ():
        head = _decode_head(item)
        kind_name = _kind_name(head.kind, api_group(head.api_version))
        for name in {kind_name, f"{kind_name}/{head.metadata.name}"} & beside.keys():
            beside[name].append(readable_body(item))
    in_order = {name: tuple(sorted(items, key=_raw_identity)) for name, items in beside.items()}
    return DecodedList(typed, listed.kinds, in_order, read_timestamp(listed.read_at))


def _raw_identity(item: RawObject) -> tuple[str, str]:
    metadata = item.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    return str(known.get("namespace", "")), str(known.get("name", ""))


def encode_list(
    objects: Iterable[Listed],
    kinds: Iterable[str],
    beside: Mapping[str, Iterable[RawObject]] | None = None,
    read_at: datetime | None = None,
) -> bytes:
    """Return a List in JSON; equal objects and kinds give equal bytes."""
    items: list[RawObject] = [_with_kind(obj) for obj in objects]
    listed = {"apiVersion": "v1", "kind": "List", "kinds": list(kinds), "items": items}
    if beside:
        items += items_beside(beside)
        listed["beside"] = sorted(beside)
    if beside and read_at is not None:
        listed["readAt"] = format_timestamp(read_at)
    return msgspec.json.encode(listed, order="deterministic")


def items_beside(beside: Mapping[str, Iterable[RawObject]]) -> Iterator[RawObject]:
    """Yield each object of the kinds that plugins read once, also one that is read by its name and with all others."""
    for name in sorted(beside):
        kind_name, _, only = name.partition("/")
        if not only or kind_name not in beside:
            yield from beside[name]


def encode_items(items: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a List in JSON of API objects as they are."""
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(items)})


def kind_of(obj: Listed) -> tuple[str, str]:
    """Return an object's `apiVersion` and `kind`."""
    return (obj.api_version, obj.kind) if isinstance(obj, _SAYING_THEIR_KIND) else _KINDS[type(obj)]


def name_of(obj: Listed) -> str:
    """Return an object's kind and name, for people."""
    return _title(kind_of(obj)[1], obj.metadata.namespace, obj.metadata.name)


def describe_unreadable(unreadable: Listed) -> str:
    """Return that an object cannot be read, and why; a long reason is cut."""
    why = unreadable.metadata.unreadable
    return f"{name_of(unreadable)} cannot be read: {why if len(why) <= _LONGEST_WHY else f'{why[:_LONGEST_WHY]}…'}"


def _with_kind(obj: Listed) -> dict[str, Any]:
    """Return an object in builtins, with its apiVersion and kind."""
    body: dict[str, Any] = msgspec.to_builtins(obj)
    if isinstance(obj, _SAYING_THEIR_KIND):
        return body
    api_version, kind = kind_of(obj)
    return {"apiVersion": api_version, "kind": kind, **body}


def _decode_outside(raw: bytes) -> _List:
    """Return the List with its items unread."""
    if not raw.strip():
        raise InputError("the snapshot", None, _EXPECTED, said="empty")
    raw = cut_long_integers(raw)
    try:
        return _LIST_DECODER.decode(raw)
    except msgspec.ValidationError as error:
        misfit = _misfit("the snapshot", error)
        raise InputError(misfit.field, None, _EXPECTED, said=misfit.said) from error
    except msgspec.DecodeError as error:
        description = f"cut off after {len(raw)} bytes" if "truncated" in str(error) else f"no JSON ({error})"
        raise InputError("the snapshot", None, _EXPECTED, said=description) from error


def _decode_item(index: int, raw: msgspec.Raw) -> Listed | None:
    """Return one object, None for a kind that Berth does not read."""
    place = f"items[{index}]"
    try:
        head = _decode_head(raw)
        if not head.kind:
            raise InputError(f"{place}.kind", None, "that of an API object", said="missing")
        type_ = _TYPES.get((head.api_version, head.kind))
        return None if type_ is None else _decode_as(type_, head, raw)
    except msgspec.ValidationError as error:
        raise _misfit(place, error) from error
    except msgspec.DecodeError as error:
        raise InputError(place, None, "an API object in JSON", said=f"no JSON ({error})") from error


def _decode_head(raw: msgspec.Raw) -> _ObjectIdentity:
    """Return an object's kind, and its identity if that can be read."""
    try:
        return _HEAD_DECODER.decode(raw)
    except msgspec.ValidationError:
        kind = _KIND_DECODER.decode(raw)
        return _ObjectIdentity(api_version=kind.api_version, kind=kind.kind)


def _decode_as(type_: type[Listed], head: _ObjectIdentity, raw: msgspec.Raw) -> Listed:
    """Return an object of a known type, or its stand-in if it cannot be read."""
    why = head.metadata.unreadable
    if not why and (is_cut(raw) or has_cut_integer(raw) or _may_be_too_deep(raw)):
        why = why_unreadable(readable_body(raw), None)
    if not why and head.metadata.name:
        try:
            return _DECODERS[head.api_version, head.kind].decode(raw)
        except msgspec.ValidationError as error:
            why = str(error)
    body = mark(readable_body(raw), why)
    return Reservation.read(body) if type_ is Reservation else stand_in(body, type_, why)


def _may_be_too_deep(raw: msgspec.Raw) -> bool:
    """Return whether an object has enough brackets to be nested too deeply; few have."""
    text = bytes(raw)
    return text.count(b"{") + text.count(b"[") > MAX_DEPTH


def _misfit(place: str, error: msgspec.ValidationError) -> InputError:
    """Return the error of a field with the wrong type as an `InputError`."""
    parts = _AT_PATH.fullmatch(str(error))
    complaint, path = (parts["complaint"], parts["path"]) if parts else (str(error), None)
    field = f"{place}: {path}" if path else place
    if types := _WRONG_TYPE.fullmatch(complaint):
        return InputError(field, None, f"{types['expected']}", said=f"of JSON type {types['got']}")
    return InputError(field, None, "what the Kubernetes API serves", said=f"unreadable ({complaint})")


def _title(kind: str, namespace: str, name: str) -> str:
    """Return an object's kind and name, for people."""
    name = name or "without a readable name"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


@dataclass(frozen=True, slots=True)
class SurgeObjects:
    """The objects of a List that decide which pods can surge, undecoded."""

    by_kind: Mapping[str, tuple[dict[str, Any], ...]]
    lacking: tuple[SnapshotKind, ...]
    """Kinds without which that is not known."""

    @classmethod
    def from_json(cls, raw: bytes, stated: Iterable[SnapshotKind] = ()) -> "SurgeObjects":
        """Decode a List that `Snapshot.from_json` has read; `stated` has the same meaning there."""
        listed, bodies_by_kind = _decode_outside(raw), defaultdict[str, list[dict[str, Any]]](list)
        present = set()
        for item in listed.items or ():
            head = _decode_head(item)
            if is_for_surges(api_group(head.api_version), head.kind):
                present.add((head.api_version, head.kind))
                bodies_by_kind[head.kind].append(with_metadata(readable_body(item)))
        lacking = lacking_for_surges(present, {*stated, *known_kinds(listed.kinds)})
        return cls({kind: tuple(items) for kind, items in bodies_by_kind.items()}, lacking)
