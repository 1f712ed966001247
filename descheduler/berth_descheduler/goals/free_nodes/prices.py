"""What nodes cost an hour, by the argument `nodePrice`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_core import InputError, Node, refuse_unknown
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner.weights import format_weight, parse_weight

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_CAPACITY_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "karpenter.sh/capacity-type": {"spot": "spot", "on-demand": "on-demand", "reserved": "reserved"},
    "eks.amazonaws.com/capacityType": {
        "SPOT": "spot",
        "ON_DEMAND": "on-demand",
        "CAPACITY_BLOCK": "reserved",
    },
    "cloud.google.com/gke-spot": {"true": "spot"},
    "cloud.google.com/gke-preemptible": {"true": "spot"},
    "kubernetes.azure.com/scalesetpriority": {"spot": "spot"},
}
"""How nodes are bought, by labels of Karpenter and of clouds, in Karpenter's words; the first that says it counts."""

_PRICE_FIELDS: Final = ("annotation", "label", "instanceTypes", "default")


@dataclass(frozen=True, slots=True)
class NodePrices(Rule):
    """Where the price of a node's hour is written; the first that says one counts.

    The currency is whatever the amounts are in. A node without a price counts 0.
    """

    annotation: str = ""
    """A node's annotation that says its own price."""

    label: str = ""
    """A node's label that does."""

    instance_types: Mapping[str, int] = field(default_factory=dict)
    """By the label `node.kubernetes.io/instance-type`, or by it and how the node is bought (`m5.large/spot`), in
    millionths."""

    default: int | None = None
    """Of nodes of which nothing else says it, in millionths."""

    @classmethod
    def parse(cls, raw: object) -> "NodePrices":
        """Return the prices of the argument `nodePrice`; raises `InputError`."""
        if raw is None:
            return cls()
        expected = f"a mapping with one or more of {', '.join(_PRICE_FIELDS)}"
        if not isinstance(raw, Mapping) or not raw:
            raise InputError("nodePrice", raw, expected)
        refuse_unknown("nodePrice", raw, _PRICE_FIELDS)
        types = raw.get("instanceTypes", {})
        if not isinstance(types, Mapping):
            raise InputError("nodePrice.instanceTypes", types, "a mapping from instance type to price per hour")
        default = raw.get("default")
        return cls(
            annotation=_key("annotation", raw),
            label=_key("label", raw),
            instance_types={
                str(name): parse_weight(f"nodePrice.instanceTypes.{name}", price) for name, price in types.items()
            },
            default=None if default is None else parse_weight("nodePrice.default", default),
        )

    def __bool__(self) -> bool:
        """Return whether any price is given."""
        return bool(self.annotation or self.label or self.instance_types or self.default is not None)

    @property
    def weighs_nodes(self) -> bool:
        return bool(self)

    def node_weight(self, node: Node) -> int | None:
        """Return a node's price in millionths; None if nothing says it, or in a way that cannot be read."""
        labels = node.metadata.labels
        for key, notes in ((self.annotation, node.metadata.annotations), (self.label, labels)):
            if key and key in notes:
                return _read_money(notes[key])
        instance_type, capacity = labels.get(_INSTANCE_TYPE, ""), _capacity_type(labels)
        as_bought = self.instance_types.get(f"{instance_type}/{capacity}") if capacity else None
        return self.instance_types.get(instance_type, self.default) if as_bought is None else as_bought

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        args: dict[str, Any] = {"annotation": self.annotation, "label": self.label}
        args["instanceTypes"] = {name: format_weight(self.instance_types[name]) for name in sorted(self.instance_types)}
        args["default"] = "" if self.default is None else format_weight(self.default)
        return {name: value for name, value in args.items() if value}


def _capacity_type(labels: Mapping[str, str]) -> str:
    """Return how a node is bought: `spot`, `on-demand` or `reserved`; "" where no label says it."""
    words = (known.get(labels.get(label, "")) for label, known in _CAPACITY_LABELS.items())
    return next((word for word in words if word is not None), "")


def _key(name: str, raw: Mapping[str, Any]) -> str:
    key = raw.get(name, "")
    if not isinstance(key, str) or (name in raw and not key):
        raise InputError(f"nodePrice.{name}", key, f"the key of a node's {name}, such as example.com/price-per-hour")
    return key


def _read_money(text: str) -> int | None:
    """Return what a node says of itself; a node that says nonsense must not stop the plan."""
    try:
        return parse_weight("nodePrice", text)
    except InputError:
        return None
