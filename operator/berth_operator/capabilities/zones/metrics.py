"""The metrics of zones."""

from typing import Final

from prometheus_client import Gauge

from berth_operator.metrics import REGISTRY

ZONES: Final = Gauge("berth_revocable_zones", "RevocableZones by state", ["state"], registry=REGISTRY)
LENT_NODES: Final = Gauge("berth_lent_nodes", "Nodes with the label of a zone", ["zone"], registry=REGISTRY)
LENT_NODE_PODS: Final = Gauge(
    "berth_lent_node_pods", "Pods on the nodes of a zone that leave when it closes", ["zone"], registry=REGISTRY
)
