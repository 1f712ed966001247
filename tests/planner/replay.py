"""A second reading of the rules by which kube-scheduler places pods, to check plans with.

It does not use the planner, nor anything of `berth_core`: it reads API objects as plain dictionaries and takes the
simplest way to each answer. A plan is replayed move by move and wave by wave.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Object = dict[str, Any]

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, not bound
UNITS: dict[str, int | Fraction] = {
    "": 1,
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
DRAINING = {"key": "berth.volcano.sh/draining", "value": "plan", "effect": "NoSchedule"}


def amount(text: str) -> Fraction:
    unit = text.lstrip("0123456789.")
    return Fraction(text.removesuffix(unit)) * UNITS[unit]


def name(item: Object) -> str:
    return str(item["metadata"]["name"])


def labels(item: Object) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("labels", {})
    return found


def space(pod: Object) -> str:
    return str(pod["metadata"].get("namespace", ""))


def requests(pod: Object) -> dict[str, Fraction]:
    """What a pod takes at the worst moment of its life: each step of its start beside its helpers, or all at once."""
    spec = pod["spec"]
    helpers = [one for one in spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
    moments = [[*spec.get("containers", []), *helpers]]
    for index, one in enumerate(spec.get("initContainers", [])):
        before = [other for other in spec["initContainers"][:index] if other in helpers]
        moments.append([*before, one])
    asked: dict[str, Fraction] = {}
    for moment in moments:
        for resource in {name for one in moment for name in own_requests(one)}:
            at_once = sum((amount(own_requests(one).get(resource, "0")) for one in moment), Fraction(0))
            asked[resource] = max(asked.get(resource, Fraction(0)), at_once)
    for resource, text in spec.get("overhead", {}).items():
        asked[resource] = asked.get(resource, Fraction(0)) + amount(text)
    return asked


def own_requests(container: Object) -> dict[str, str]:
    found: dict[str, str] = container.get("resources", {}).get("requests", {})
    return found


def expression_holds(expression: Object, found: str | None) -> bool:
    values = list(expression.get("values", []))
    match expression["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt":
            return found is not None and int(found) > int(values[0])
        case "Lt":
            return found is not None and int(found) < int(values[0])
        case other:
            raise AssertionError(other)


def selects(selector: Object | None, found: dict[str, str]) -> bool:
    if selector is None:
        return False
    return all(found.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        expression_holds(one, found.get(one["key"])) for one in selector.get("matchExpressions", [])
    )


def node_term_holds(term: Object, node: Object) -> bool:
    expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    if not expressions and not fields:
        return False
    return all(expression_holds(one, labels(node).get(one["key"])) for one in expressions) and all(
        expression_holds(one, name(node)) for one in fields
    )


def likes_node(pod: Object, node: Object) -> bool:
    wanted = pod["spec"].get("nodeSelector", {})
    if any(labels(node).get(key) != value for key, value in wanted.items()):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(node_term_holds(one, node) for one in required["nodeSelectorTerms"])


def puts_up_with(pod: Object, taint: Object) -> bool:
    for toleration in pod["spec"].get("tolerations", []):
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key", "") not in ("", taint["key"]):
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def barred(pod: Object, node: Object) -> bool:
    taints = node["spec"].get("taints", [])
    return any(one["effect"] in ("NoSchedule", "NoExecute") and not puts_up_with(pod, one) for one in taints)


def ports(pod: Object) -> list[tuple[str, int, str]]:
    found = [one for container in pod["spec"].get("containers", []) for one in container.get("ports", [])]
    return [
        (p.get("protocol", "TCP"), p["hostPort"], p.get("hostIP") or EVERY_ADDRESS) for p in found if p.get("hostPort")
    ]


def ports_clash(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or EVERY_ADDRESS in (one[2], other[2]))


@dataclass(frozen=True)
class Present:
    """A pod that is on a node."""

    pod: Object
    node: str
    terminating: bool = False


class World:
    """The objects of a cluster, and kube-scheduler's filters over a given set of pods."""

    def __init__(self, items: Iterable[Object]) -> None:
        listed = list(items)
        self.nodes = {name(one): one for one in listed if one["kind"] == "Node"}
        self.pods = {(space(one), name(one)): one for one in listed if one["kind"] == "Pod"}
        self.namespaces = {name(one): labels(one) for one in listed if one["kind"] == "Namespace"}
        self.budgets = [one for one in listed if one["kind"] == "PodDisruptionBudget"]
        self.claims = {(space(one), name(one)): one for one in listed if one["kind"] == "PersistentVolumeClaim"}
        self.volumes = {name(one): one for one in listed if one["kind"] == "PersistentVolume"}
        self.reservations = [one for one in listed if one["kind"] == "Reservation"]

    def present(self) -> list[Present]:
        found = []
        for pod in self.pods.values():
            on = pod["spec"].get("nodeName", "")
            if on and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                found.append(Present(pod, on, "deletionTimestamp" in pod["metadata"]))
        return found

    def expected(self) -> list[Present]:
        waiting = [pod for pod in self.pods.values() if not pod["spec"].get("nodeName")]
        chosen = [(pod, pod["status"].get("nominatedNodeName", "")) for pod in waiting]
        return [Present(pod, on) for pod, on in (*chosen, *self._promised()) if on in self.nodes]

    def _promised(self) -> Iterator[tuple[Object, str]]:
        """The places of Reservations for one node, none of which has a placeholder in these clusters."""
        for one in self.reservations:
            if (one["status"].get("state") or {}).get("phase") in ("Failed", "Succeeded"):
                continue
            for task in one["spec"]["tasks"]:
                if len(task.get("reservationNodeNames", [])) == 1:
                    for _ in range(task.get("replicas", 1)):
                        yield placeholder_of(task["template"]), task["reservationNodeNames"][0]

    def tainted(self, names: Iterable[str]) -> "World":
        """Return the same objects with our taint on some nodes."""
        other = copy(self)
        other.nodes = dict(self.nodes)
        for node in names:
            spec = self.nodes[node]["spec"]
            taints = [*spec.get("taints", []), DRAINING]
            other.nodes[node] = {**self.nodes[node], "spec": {**spec, "taints": taints}}
        return other

    def why_not(self, pod: Object, target: str, present: Sequence[Present]) -> str | None:
        """Return the filter of kube-scheduler that keeps a new pod off a node."""
        node = self.nodes[target]
        checks = {
            **self.checks_of_node(pod, node),
            "room": self._has_room(pod, node, present),
            "ports": self._has_ports(pod, target, present),
            "volumes": self._reaches_volumes(pod, node),
            "claims": self._has_its_claims_alone(pod, present),
            "affinity": self._finds_company(pod, node, present),
            "anti-affinity": self._is_not_shunned(pod, node, present),
            "spread": self._is_even(pod, node, present),
        }
        return next((check for check, holds in checks.items() if not holds), None)

    def checks_of_node(self, pod: Object, node: Object) -> dict[str, bool]:
        """Return whether a pod passes each filter that depends on the node alone."""
        conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])}
        return {
            "ready": conditions.get("Ready") == "True",
            "unschedulable": not node["spec"].get("unschedulable", False),
            "taints": not barred(pod, node),
            "node affinity": likes_node(pod, node),
        }

    def _has_room(self, pod: Object, node: Object, present: Sequence[Present]) -> bool:
        there = [one.pod for one in present if one.node == name(node)]
        allocatable = {resource: amount(text) for resource, text in node["status"]["allocatable"].items()}
        if len(there) + 1 > allocatable["pods"]:
            return False
        for resource, wanted in requests(pod).items():
            taken = sum((requests(one).get(resource, Fraction(0)) for one in there), Fraction(0))
            if wanted > 0 and taken + wanted > allocatable.get(resource, 0):
                return False
        return True

    def _has_ports(self, pod: Object, target: str, present: Sequence[Present]) -> bool:
        taken = [port for one in present if one.node == target for port in ports(one.pod)]
        return not any(ports_clash(one, other) for one in ports(pod) for other in taken)

    def _reaches_volumes(self, pod: Object, node: Object) -> bool:
        for one in pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" not in one:
                continue
            claim = self.claims[space(pod), one["persistentVolumeClaim"]["claimName"]]
            volume = self.volumes[claim["spec"]["volumeName"]]
            required = volume["spec"].get("nodeAffinity", {}).get("required")
            if required and not any(node_term_holds(term, node) for term in required["nodeSelectorTerms"]):
                return False
            for key in ("topology.kubernetes.io/zone", "topology.kubernetes.io/region"):
                zones = labels(volume).get(key)
                if zones and key in labels(node) and labels(node)[key] not in zones.split("__"):
                    return False
        return True

    def _has_its_claims_alone(self, pod: Object, present: Sequence[Present]) -> bool:
        taken = {key for one in present for key in claims(one.pod)}
        return self.claims_held_alone(pod).isdisjoint(taken)

    def claims_held_alone(self, pod: Object) -> set[tuple[str, str]]:
        """Return the claims of a pod that no other pod may use beside it."""
        return {key for key in claims(pod) if "ReadWriteOncePod" in self.claims[key]["spec"].get("accessModes", [])}

    def _term_means(self, term: Object, holder: Object, other: Object) -> bool:
        selector = term.get("labelSelector")
        if not selects(selector, labels(other)):
            return False
        for key in term.get("matchLabelKeys", []):
            if key in labels(holder) and labels(other).get(key) != labels(holder)[key]:
                return False
        for key in term.get("mismatchLabelKeys", []):
            if key in labels(holder) and labels(other).get(key) == labels(holder)[key]:
                return False
        named, by_label = term.get("namespaces", []), term.get("namespaceSelector")
        if not named and by_label is None:
            return space(other) == space(holder)
        return space(other) in named or (
            by_label is not None and selects(by_label, self.namespaces.get(space(other), {}))
        )

    def _finds_company(self, pod: Object, node: Object, present: Sequence[Present]) -> bool:
        terms = pod_terms(pod, "podAffinity")
        if not terms:
            return True
        if any(term["topologyKey"] not in labels(node) for term in terms):
            return False
        friends = [one for one in present if all(self._term_means(term, pod, one.pod) for term in terms)]
        counted = [(one, t) for one in friends for t in terms if t["topologyKey"] in labels(self.nodes[one.node])]
        if not counted and all(self._term_means(term, pod, pod) for term in terms):
            return True
        return all(
            any(same_domain(term["topologyKey"], node, self.nodes[one.node]) for one in friends) for term in terms
        )

    def _is_not_shunned(self, pod: Object, node: Object, present: Sequence[Present]) -> bool:
        for one in present:
            there = self.nodes[one.node]
            for term in pod_terms(pod, "podAntiAffinity"):
                if self._term_means(term, pod, one.pod) and same_domain(term["topologyKey"], node, there):
                    return False
            for term in pod_terms(one.pod, "podAntiAffinity"):
                if self._term_means(term, one.pod, pod) and same_domain(term["topologyKey"], node, there):
                    return False
        return True

    def _is_even(self, pod: Object, node: Object, present: Sequence[Present]) -> bool:
        every = pod["spec"].get("topologySpreadConstraints", [])
        hard = [one for one in every if one["whenUnsatisfiable"] == "DoNotSchedule"]
        return all(self._is_even_for(constraint, hard, pod, node, present) for constraint in hard)

    def _is_even_for(
        self, constraint: Object, hard: list[Object], pod: Object, node: Object, present: Sequence[Present]
    ) -> bool:
        key, selector = constraint["topologyKey"], constraint.get("labelSelector")
        if key not in labels(node):
            return False
        counts: dict[str, int] = {}
        for one in self.nodes.values():
            if self._counts_for(constraint, hard, pod, one):
                counts.setdefault(labels(one)[key], 0)
        for other in present:
            on = self.nodes[other.node]
            if other.terminating or space(other.pod) != space(pod) or not self._counts_for(constraint, hard, pod, on):
                continue
            if selector and self._spread_selects(constraint, pod, other.pod):
                counts[labels(on)[key]] += 1
        lowest = min(counts.values(), default=0)
        if len(counts) < constraint.get("minDomains", 1):
            lowest = 0
        itself = 1 if self._spread_selects(constraint, pod, pod) else 0
        allowed: int = constraint.get("maxSkew", 1)
        return counts.get(labels(node)[key], 0) + itself - lowest <= allowed

    def _spread_selects(self, constraint: Object, holder: Object, other: Object) -> bool:
        keys = [key for key in constraint.get("matchLabelKeys", []) if key in labels(holder)]
        same = all(labels(other).get(key) == labels(holder)[key] for key in keys)
        return same and selects(constraint.get("labelSelector"), labels(other))

    def _counts_for(self, constraint: Object, hard: list[Object], pod: Object, node: Object) -> bool:
        if any(one["topologyKey"] not in labels(node) for one in hard):
            return False
        if constraint.get("nodeAffinityPolicy") != "Ignore" and not likes_node(pod, node):
            return False
        return constraint.get("nodeTaintsPolicy") != "Honor" or not barred(pod, node)


def pod_terms(pod: Object, kind: str) -> list[Object]:
    affinity = pod["spec"].get("affinity", {}).get(kind, {})
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", []))


def same_domain(key: str, one: Object, other: Object) -> bool:
    return labels(one).get(key, "") == labels(other).get(key) and key in labels(one)


def claims(pod: Object) -> set[tuple[str, str]]:
    volumes = pod["spec"].get("volumes", [])
    named = (one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one)
    return {(space(pod), one) for one in named}


def placeholder_of(pod: Object) -> Object:
    """The pod that holds the place of another: its amounts and what ties it to nodes, in Berth's namespace."""
    spec, affinity = pod["spec"], pod["spec"].get("affinity", {})
    kept = {key: spec[key] for key in ("initContainers", "overhead", "nodeSelector", "tolerations") if key in spec}
    bare = [{key: value for key, value in one.items() if key != "ports"} for one in spec.get("containers", [])]
    tied = {"affinity": {"nodeAffinity": affinity["nodeAffinity"]}} if "nodeAffinity" in affinity else {}
    marks = {"berth.volcano.sh/placeholder": "true", "app.kubernetes.io/managed-by": "berth-operator"}
    meta = {"name": "placeholder", "namespace": "berth-system", "labels": marks}
    return {"metadata": meta, "spec": {**kept, **tied, "containers": bare}, "status": {"phase": "Running"}}


MAKERS = {("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("", "ReplicationController"), ("batch", "Job")}


def why_not_moved(world: World, pod: Object) -> str | None:
    """Return what forbids that a pod is evicted at all."""
    owners = [one for one in pod["metadata"].get("ownerReferences", []) if one.get("controller")]
    makers = {(one["apiVersion"].rpartition("/")[0], one["kind"]) for one in owners}
    own_marks = {"berth.volcano.sh/placeholder", "berth.volcano.sh/reservation"}
    checks = {
        "is not running": pod["status"].get("phase") == "Running",
        "is being deleted": "deletionTimestamp" not in pod["metadata"],
        "is not made again": bool(makers) and makers <= MAKERS,
        "is a mirror": "kubernetes.io/config.mirror" not in pod["metadata"].get("annotations", {}),
        "is the system's": (pod["spec"].get("priority") or 0) < 2_000_000_000,
        "has data on its node": not any(
            "emptyDir" in one or "hostPath" in one for one in pod["spec"].get("volumes", [])
        ),
        "is Berth's": own_marks.isdisjoint(labels(pod)) and space(pod) != "berth-system",
        "has a claim that is not known": claims(pod) <= world.claims.keys(),
        "is under several budgets": len(budgets_over(world, pod)) <= 1,
        "is under an exhausted budget": all(lets_go(one, pod) for one in budgets_over(world, pod)),
    }
    return next((check for check, holds in checks.items() if not holds), None)


def budgets_over(world: World, pod: Object) -> list[Object]:
    near = (one for one in world.budgets if space(one) == space(pod))
    return [one for one in near if selects(one["spec"].get("selector"), labels(pod))]


def is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def lets_go(budget: Object, pod: Object) -> bool:
    status = budget["status"]
    if status.get("disruptionsAllowed", 0) > 0:
        return True
    if is_ready(pod):
        return False
    enough: bool = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
    return enough or budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"


def forbidden_moves(items: list[Object], moves: Sequence[Object], *, now: str = "") -> list[str]:
    """Return the moves that may not be made whatever room there is, and the waves that overdraw a budget."""
    world, problems = World(items), []
    for move in moves:
        pod, source = world.pods[move["namespace"], move["pod"]], world.nodes[move["source"]]
        if (reason := why_not_moved(world, pod)) is not None:
            problems.append(f"{move['pod']} {reason}")
        if labels(source).get("critical") == "true":
            problems.append(f"{move['pod']} leaves a critical node")
        if now and source["metadata"].get("annotations", {}).get("berth.volcano.sh/last-defragmented", "") > now:
            problems.append(f"{move['pod']} leaves a node that cools down until after {now}")
    for budget in world.budgets:
        hit = [
            move["wave"]
            for move in moves
            if budget in budgets_over(world, pod := world.pods[move["namespace"], move["pod"]]) and is_ready(pod)
        ]
        allowed = budget["status"].get("disruptionsAllowed", 0)
        problems += [f"wave {wave} overdraws {name(budget)}" for wave in set(hit) if hit.count(wave) > allowed]
    return problems


def replay_steps(items: list[Object], moves: Sequence[Object]) -> list[str]:
    """Return what is wrong with moves made one after the other in their order."""
    world = World(items)
    return list(_replay(world, moves, sources_of(moves)))


def replay_waves(items: list[Object], moves: Sequence[Object], seed: int = 0) -> list[str]:
    """Return what is wrong with moves made wave by wave, each wave in several orders and all at once."""
    world, chance = World(items), random.Random(seed)  # noqa: S311 - chooses orders to try
    waves = [list(group) for _, group in itertools.groupby(sorted(moves, key=wave_of), key=wave_of)]
    problems = (
        [] if [wave_of(wave[0]) for wave in waves] == list(range(1, len(waves) + 1)) else ["waves are not 1, 2, ..."]
    )
    done: list[Object] = []
    for wave in waves:
        problems += _overfull(world, done, wave)
        for _ in range(3):
            order = chance.sample(wave, len(wave))
            problems += _replay(world, order, sources_of(moves), after=done)
        done += wave
    return problems


def replay_window(items: list[Object], moves: Sequence[Object], seed: int = 0) -> list[str]:
    """Return what is wrong with moves that begin and end in any order, each after those that it names."""
    world, chance = World(items), random.Random(seed)  # noqa: S311 - chooses orders to try
    waits = [named_before(moves, index) for index in range(len(moves))]
    over: list[int] = []
    open_moves: list[int] = []
    problems: list[str] = []
    while len(over) < len(moves):
        known = {*over, *open_moves}
        ready = [index for index in range(len(moves)) if index not in known and waits[index] <= set(over)]
        if ready and (not open_moves or chance.random() < _BEGINS):
            begun = chance.choice(ready)
            problems += _replay(world, [moves[begun]], sources_of(moves), after=[moves[one] for one in over])
            open_moves.append(begun)
            problems += _overfull(world, [moves[one] for one in over], [moves[one] for one in open_moves])
        elif open_moves:
            over.append(open_moves.pop(chance.randrange(len(open_moves))))
        else:
            return [*problems, f"nothing may begin after {over}"]
    return problems


_BEGINS = 0.7
"""How often a move begins where one could end as well."""


def named_before(moves: Sequence[Object], index: int) -> set[int]:
    """Return the moves that are over before one begins."""
    named = moves[index].get("after")
    if named is not None:
        return set(named)
    return {other for other, move in enumerate(moves) if wave_of(move) < wave_of(moves[index])}


def wave_of(move: Object) -> int:
    return int(move["wave"])


def sources_of(moves: Sequence[Object]) -> set[str]:
    """The nodes that are tainted while a plan runs: those that it empties, not those that it also fills."""
    return {move["source"] for move in moves}.difference(move["target"] for move in moves)


def moved(present: Iterable[Present], moves: Iterable[Object]) -> list[Present]:
    targets = {(move["namespace"], move["pod"]): move["target"] for move in moves}
    return [
        Present(one.pod, targets.get((space(one.pod), name(one.pod)), one.node), one.terminating) for one in present
    ]


def filled_above(items: list[Object], moves: Sequence[Object], percent: Fraction) -> list[str]:
    """Name the targets of which the pods, after all moves, request more than a percentage of the cpu."""
    where = {(move["namespace"], move["pod"]): move["target"] for move in moves}
    return [
        target
        for target in sorted(set(where.values()))
        if _requested_cpu(items, target, where) * 100 > percent * _allocatable_cpu(items, target)
    ]


def _requested_cpu(items: list[Object], node: str, where: dict[tuple[str, str], str]) -> Fraction:
    there = [
        one
        for one in items
        if one["kind"] == "Pod"
        and one["status"]["phase"] not in ("Succeeded", "Failed")
        and where.get((space(one), name(one)), one["spec"].get("nodeName")) == node
    ]
    return sum((requests(one).get("cpu", Fraction(0)) for one in there), Fraction(0))


def _allocatable_cpu(items: list[Object], node: str) -> Fraction:
    found = next(one for one in items if one["kind"] == "Node" and name(one) == node)
    return amount(found["status"]["allocatable"]["cpu"])


def _replay(world: World, moves: Sequence[Object], sources: set[str], after: Sequence[Object] = ()) -> Iterator[str]:
    """Yield what kube-scheduler would not do: with and without our taints, with and without what is not sure."""
    done = list(after)
    for move in moves:
        pod = world.pods[move["namespace"], move["pod"]]
        for view, other in itertools.product((world, world.tainted(sources)), (True, False)):
            present = moved(view.present(), done)
            sure = [one for one in present if not one.terminating]
            there = [*present, *view.expected()] if other else sure
            yield from _judge(view, pod, move, there)
        done.append(move)


def _judge(world: World, pod: Object, move: Object, there: list[Present]) -> Iterator[str]:
    key = f"{space(pod)}/{name(pod)}"
    old = [one for one in there if one.pod is world.pods[space(pod), name(pod)]]
    if [one.node for one in old] != [move["source"]]:
        yield f"{key} is not on {move['source']}"
        return
    without = [one for one in there if one is not old[0]]
    for case, present in (("gone", without), ("going", [*without, Present(pod, old[0].node, terminating=True)])):
        reason = world.why_not(pod, move["target"], present)
        if reason is not None:
            yield f"{key} to {move['target']}: {reason} (its old pod is {case})"
    reason = world.why_not(placeholder_of(pod), move["target"], there)
    if reason is not None:
        yield f"the place of {key} on {move['target']}: {reason}"


def _overfull(world: World, done: Sequence[Object], wave: Sequence[Object]) -> Iterator[str]:
    """Yield the nodes that do not hold their pods and all that come in a wave, with nothing of the wave released."""
    present = [*moved(world.present(), done), *world.expected()]
    for move in wave:
        coming = [Present(world.pods[m["namespace"], m["pod"]], m["target"]) for m in wave if m is not move]
        pod = world.pods[move["namespace"], move["pod"]]
        node = world.nodes[move["target"]]
        if not world._has_room(pod, node, [*present, *coming]):
            yield f"wave {move['wave']}: {move['target']} is overfull"
        if not world._has_ports(pod, move["target"], [*present, *coming]):
            yield f"wave {move['wave']}: {move['target']} is asked for a port twice"
