"""Pod templates drawn by a seed, as plain API objects: every constraint that scheduling knows."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Body = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = "example.com/rack"
GENERATION: Final = "example.com/generation"
DISK: Final = "example.com/disk"
GPU: Final = "example.com/gpu"
TAINT: Final = "example.com/dedicated"

ZONES: Final = ("east", "north", "west")
RACKS: Final = ("r0", "r1", "r2", "r3", "r4")
DISKS: Final = ("hdd", "ssd")
RUNTIME_CLASS: Final = "generated-sandboxed"
PRIORITY_CLASSES: Final = {"generated-low": 10, "generated-high": 1000}
CPUS: Final = ("100m", "250m", "500m", "750m", "1", "1500m")
MEMORIES: Final = ("128Mi", "512Mi", "1Gi", "2Gi")


@dataclass(frozen=True)
class Surroundings:
    """What the templates of a cluster may speak of."""

    namespaces: tuple[str, ...]
    node_names: tuple[str, ...]
    apps: tuple[str, ...]


class TemplateDrawer:
    """Draws pod templates; each constraint is there in some of them, the more the greater `density` is (1: many)."""

    def __init__(self, chance: Random, around: Surroundings, density: float) -> None:
        self._chance = chance
        self._around = around
        self._density = density

    def draw(self, app: str, namespace: str) -> Body:
        """Return a pod template of an app; its labels are the app and a version."""
        labels = {"app": app, "version": self._one("1", "2")}
        spec: Body = {"terminationGracePeriodSeconds": 1, "containers": self._containers()}
        parts: tuple[tuple[float, Callable[[], Body]], ...] = (
            (0.35, self._init_containers),
            (0.15, self._pod_level_resources),
            (0.15, lambda: {"runtimeClassName": RUNTIME_CLASS}),
            (0.5, self._tolerations),
            (0.15, lambda: {"nodeSelector": {DISK: self._one(*DISKS)}}),
            (0.4, lambda: {"priorityClassName": self._one(*PRIORITY_CLASSES)}),
            (0.35, lambda: {"topologySpreadConstraints": self._spreads(labels)}),
            (0.07, lambda: {"volumes": [self._local_storage()]}),
        )
        for share, part in parts:
            if self._happens(share):
                spec |= part()
        affinity = self._affinity(app, namespace)
        if affinity:
            spec["affinity"] = affinity
        return {"metadata": {"labels": labels}, "spec": spec}

    def _happens(self, share: float) -> bool:
        return self._chance.random() < share * self._density

    def _one(self, *choices: Any) -> Any:  # noqa: ANN401 - one of what was given
        return self._chance.choice(choices)

    def _requests(self) -> Body:
        return {"cpu": self._one(*CPUS), "memory": self._one(*MEMORIES)}

    def _containers(self) -> list[Body]:
        main: Body = {"name": "main", "image": "pause", "resources": {"requests": self._requests()}}
        if self._happens(0.12):
            gpus = {GPU: self._one("1", "2")}
            main["resources"] = {"requests": main["resources"]["requests"] | gpus, "limits": gpus}
        if self._happens(0.2):
            main["ports"] = [self._port()]
        if self._happens(0.3):
            beside = {"name": "beside", "image": "pause", "resources": {"requests": {"cpu": self._one(*CPUS)}}}
            return [main, beside]
        return [main]

    def _port(self) -> Body:
        port: Body = {
            "containerPort": 80,
            "hostPort": self._one(8080, 9090),
            "protocol": self._one("TCP", "TCP", "UDP"),
        }
        return port | ({"hostIP": self._one("127.0.0.1", "192.0.2.7")} if self._happens(0.3) else {})

    def _init_containers(self) -> Body:
        first = {"name": "first", "image": "pause", "resources": {"requests": {"cpu": self._one("500m", "2", "3")}}}
        sidecar: Body = {"name": "sidecar", "image": "pause", "restartPolicy": "Always"}
        sidecar["resources"] = {"requests": {"cpu": self._one("100m", "400m"), "memory": "256Mi"}}
        if self._happens(0.2):
            sidecar["ports"] = [self._port()]
        return {"initContainers": self._one([first], [sidecar], [first, sidecar], [sidecar, first])}

    def _pod_level_resources(self) -> Body:
        return {"resources": {"requests": {"cpu": self._one("4", "5"), "memory": "6Gi"}}}

    def _tolerations(self) -> Body:
        one = self._one(
            {"key": TAINT, "operator": "Exists"},
            {"key": TAINT, "operator": "Equal", "value": "batch", "effect": "NoSchedule"},
            {"key": TAINT, "value": "web"},
            {"operator": "Exists", "effect": "NoSchedule"},
        )
        return {"tolerations": [one]}

    def _local_storage(self) -> Body:
        return {"name": "scratch", "emptyDir": {}}

    def _spreads(self, labels: Body) -> list[Body]:
        keys = self._chance.sample((HOSTNAME, ZONE, RACK), self._one(1, 1, 2))
        return [self._spread(key, labels) for key in keys]

    def _spread(self, key: str, labels: Body) -> Body:
        selector = self._one(
            {"matchLabels": {"app": labels["app"]}},
            {"matchLabels": {"app": self._one(*self._around.apps)}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [labels["app"]]}]},
        )
        body = {
            "topologyKey": key,
            "maxSkew": self._one(1, 2, 3),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        options = (
            (0.3, "minDomains", self._one(2, 3, 4)),
            (0.3, "matchLabelKeys", ["version"]),
            (0.3, "nodeAffinityPolicy", self._one("Ignore", "Honor")),
            (0.4, "nodeTaintsPolicy", self._one("Ignore", "Honor")),
        )
        return body | {name: value for share, name, value in options if self._happens(share)}

    def _affinity(self, app: str, namespace: str) -> Body:
        affinity: Body = {}
        if self._happens(0.4):
            affinity["nodeAffinity"] = self._required({"nodeSelectorTerms": self._node_terms()})
        if self._happens(0.2):
            affinity["podAffinity"] = self._required([self._pod_term(self._one(app, *self._around.apps), namespace)])
        if self._happens(0.35):
            affinity["podAntiAffinity"] = self._required(
                [self._pod_term(self._one(app, *self._around.apps), namespace)]
            )
        return affinity

    def _required(self, what: Any) -> Body:  # noqa: ANN401 - terms of any kind
        return {"requiredDuringSchedulingIgnoredDuringExecution": what}

    def _node_terms(self) -> list[Body]:
        terms = [{"matchExpressions": self._chance.sample(self._node_expressions(), self._one(1, 1, 2))}]
        if self._happens(0.3):
            name = self._one(*self._around.node_names)
            terms[0]["matchFields"] = [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]
        if self._happens(0.3):
            terms.append({"matchExpressions": [self._one(*self._node_expressions())]})
        return terms

    def _node_expressions(self) -> list[Body]:
        written: tuple[tuple[str, str, list[str]], ...] = (
            (DISK, "In", ["ssd"]),
            (DISK, "In", ["hdd", "ssd"]),
            (ZONE, "NotIn", [self._one(*ZONES)]),
            (RACK, "Exists", []),
            (RACK, "DoesNotExist", []),
            (GENERATION, "Gt", [self._one("1", "2")]),
            (GENERATION, "Lt", [self._one("4", "5")]),
        )
        return [{"key": key, "operator": operator, "values": values} for key, operator, values in written]

    def _pod_term(self, app: str, namespace: str) -> Body:
        selector = self._one(
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": app}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]},
        )
        body = {"topologyKey": self._one(HOSTNAME, HOSTNAME, ZONE, RACK), "labelSelector": selector}
        options = (
            (0.2, "namespaces", [self._one(*self._around.namespaces), namespace]),
            (0.2, "namespaceSelector", self._one({}, {"matchLabels": {"team": "a"}})),
            (0.2, self._one("matchLabelKeys", "mismatchLabelKeys"), ["version"]),
        )
        return body | {name: value for share, name, value in options if self._happens(share)}
