"""What instance types cost an hour, by the ConfigMap `berth-node-prices` in Berth's own namespace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core import NODE_PRICES_CONFIG_MAP, InputError
from berth_core.object_lists import ObjectKind, RawObject
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.planner.weights import parse_weight

PRICE_MAP: Final = ObjectKind("", "v1", "configmaps", "ConfigMap", is_namespaced=True, only=NODE_PRICES_CONFIG_MAP)
CAPACITY_TYPES: Final = ("spot", "on-demand", "reserved")
"""How nodes are bought, in Karpenter's words."""

_KEYS: Final = (
    "an instance type, or an instance type with .spot, .on-demand or .reserved, such as m5.large.spot: a key of a "
    "ConfigMap takes no slash"
)


@dataclass(frozen=True, slots=True)
class PriceMap:
    """The prices in the ConfigMap of a cluster."""

    title: str
    """The ConfigMap's kind, namespace and name, for people."""

    is_known: bool = False
    """Whether the ConfigMap exists and could be read."""

    instance_types: Mapping[str, int] = field(default_factory=dict)
    """As `NodePrices.instance_types`, in millionths."""

    error: InputError | None = None
    """What is wrong with the first wrong entry; then there are no prices."""

    @classmethod
    def of(cls, view: ClusterView) -> "PriceMap":
        """Return the prices of a cluster; a ConfigMap of the same name elsewhere says nothing."""
        namespace = view.own_namespace
        title = f"ConfigMap {namespace}/{NODE_PRICES_CONFIG_MAP}"
        objects = view.objects(PRICE_MAP) or ()
        config_map = next((obj for obj in objects if obj["metadata"].get("namespace") == namespace), None)
        if config_map is None:
            return cls(title)
        try:
            return cls(title, is_known=True, instance_types=_read_prices(title, config_map))
        except InputError as error:
            return cls(title, is_known=True, error=error)


def _read_prices(title: str, config_map: RawObject) -> dict[str, int]:
    """Return the prices of a ConfigMap's `data`, with a slash before how nodes are bought; raises `InputError`."""
    prices: dict[str, int] = {}
    data: Mapping[str, str] = config_map.get("data") or {}
    for key in sorted(data):
        name, dot, capacity_type = key.rpartition(".")
        if dot and capacity_type in CAPACITY_TYPES:
            if not name:
                raise InputError(f"{title}: the key", key, _KEYS)
            prices[f"{name}/{capacity_type}"] = parse_weight(f"{title}: data.{key}", data[key])
        else:
            prices[key] = parse_weight(f"{title}: data.{key}", data[key])
    return prices
