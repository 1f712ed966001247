"""What nodes cost an hour, by the argument `nodePrice`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from berth_core import NODE_PRICES_CONFIG_MAP, InputError, Node, first_few, refuse_unknown
from berth_descheduler.capabilities.prices.price_map import PriceMap
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner.weights import format_weight, parse_weight

_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_CAPACITY_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    # Not every cloud labels nodes that are bought on demand, so a node without a label is of an unknown kind and not
    # on-demand.
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

CONFIG_MAP: Final = "configMap"
_PRICE_FIELDS: Final = ("annotation", "label", "instanceTypes", CONFIG_MAP, "default")
_LISTED_TYPES: Final = 6


@dataclass(frozen=True, slots=True)
class NodePrices(Rule):
    """Where the price of a node's hour is written; the first source that has one counts.

    The currency is that of the amounts. A node without a price counts 0.
    """

    annotation: str = ""
    """A node's annotation that says its own price."""

    label: str = ""
    """A node's label that says its own price."""

    instance_types: Mapping[str, int] = field(default_factory=dict)
    """Prices in millionths by the label `node.kubernetes.io/instance-type`, or by it and how the node is bought
    (`m5.large/spot`)."""

    config_map: bool = False
    """Whether the ConfigMap `berth-node-prices` in Berth's own namespace has further instance types."""

    default: int | None = None
    """The price of a node of which nothing else says it, in millionths."""

    price_map: PriceMap | None = None
    """What the ConfigMap of a cluster has; None if no cluster was looked at, or the ConfigMap is not asked for."""

    unknown_types: tuple[str, ...] = ()
    """Instance types of a cluster's nodes whose price should be in the ConfigMap and is not."""

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
        default, config_map = raw.get("default"), raw.get(CONFIG_MAP, False)
        if not isinstance(config_map, bool):
            expected = f"true: the ConfigMap is {NODE_PRICES_CONFIG_MAP} in Berth's own namespace"
            raise InputError(f"nodePrice.{CONFIG_MAP}", config_map, expected)
        return cls(
            annotation=_key("annotation", raw),
            label=_key("label", raw),
            instance_types={
                str(name): parse_weight(f"nodePrice.instanceTypes.{name}", price) for name, price in types.items()
            },
            config_map=config_map,
            default=None if default is None else parse_weight("nodePrice.default", default),
        )

    def __bool__(self) -> bool:
        """Return whether any price is given."""
        is_given = self.annotation or self.label or self.instance_types or self.config_map
        return bool(is_given or self.default is not None)

    @property
    def weighs_nodes(self) -> bool:
        return bool(self)

    def on(self, view: ClusterView, run_began: datetime | None) -> "NodePrices":
        """Return the prices with those of the cluster's ConfigMap, where that is asked for."""
        del run_began
        if not self.config_map:
            return self
        price_map = PriceMap.of(view)
        read = replace(self, price_map=price_map)
        unknown_types = read.types_without_price(view.snapshot.nodes) if price_map.is_known else ()
        return replace(read, unknown_types=unknown_types)

    def node_weight(self, node: Node) -> int | None:
        """Return a node's price in millionths; None if nothing says it, or in a way that cannot be read.

        Raises `InputError` where an entry of the ConfigMap is wrong. A plan under way asks for no price, and goes on.
        """
        # A price list with a typo must not read as nodes that cost nothing, which no plan would empty.
        if self.price_map is not None and self.price_map.error is not None:
            raise self.price_map.error
        own_key, notes = self._own_price(node)
        if own_key:
            return _read_money(notes[own_key])
        price = self._type_price(node.metadata.labels)
        return self.default if price is None else price

    def notes(self) -> Iterator[str]:
        """Yield that the ConfigMap is not known, or which types it lacks."""
        if self.price_map is None:
            return
        if not self.price_map.is_known:
            yield f"nodePrice: {self.price_map.title} does not exist or could not be read, so it says no price."
        elif self.unknown_types:
            named_types = first_few(list(self.unknown_types), _LISTED_TYPES)
            yield f"nodePrice: {self.price_map.title} says no price of nodes of the type {named_types}."

    def types_without_price(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        """Return the instance types of nodes that have no price of their own and none by their type, sorted."""
        labels_of_unpriced = (node.metadata.labels for node in nodes if not self._own_price(node)[0])
        unknown_types = (
            labels.get(_INSTANCE_TYPE, "") for labels in labels_of_unpriced if self._type_price(labels) is None
        )
        return tuple(sorted({*unknown_types} - {""}))

    def _own_price(self, node: Node) -> tuple[str, Mapping[str, str]]:
        """Return the key of a node's own price and the annotations or labels that have it; "" where none does."""
        for key, notes in ((self.annotation, node.metadata.annotations), (self.label, node.metadata.labels)):
            if key and key in notes:
                return key, notes
        return "", {}

    def _type_price(self, labels: Mapping[str, str]) -> int | None:
        """Return the price of a node's type, that of the argument before that of the ConfigMap."""
        instance_type, capacity = labels.get(_INSTANCE_TYPE, ""), _capacity_type(labels)
        for prices in (self.instance_types, self.price_map.instance_types if self.price_map else {}):
            # The price of a spot node may be a third of its type's; a list without spot prices is still better than
            # none.
            as_bought = prices.get(f"{instance_type}/{capacity}") if capacity else None
            price = prices.get(instance_type) if as_bought is None else as_bought
            if price is not None:
                return price
        return None

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        args: dict[str, Any] = {"annotation": self.annotation, "label": self.label}
        args["instanceTypes"] = {name: format_weight(self.instance_types[name]) for name in sorted(self.instance_types)}
        args[CONFIG_MAP] = self.config_map
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
