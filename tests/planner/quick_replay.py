"""What `replay` does, for plans of large clusters: the same rules, each asked only of the pods that it can be about.

`replay` looks at all pods of a cluster for every move. Here pods are counted by node and by what selectors see of them:
their namespace and labels. A move changes these counts where it takes place, and a rule reads the pods on one node, or
those that a selector selects, which is computed once for all pods with equal labels. `replay` says what a selector, a
term or a spread means and what a pod requests; the sentences are the same.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from planner.replay import (
    Object,
    Present,
    World,
    amount,
    claims,
    labels,
    placeholder_of,
    pod_terms,
    ports,
    ports_clash,
    requests,
    same_domain,
    sources_of,
    space,
)

Key: TypeAlias = tuple[str, str, str]
"""The namespace, labels and anti-affinity of a pod."""


@dataclass(eq=False)
class Alike:
    """Pods with equal namespace, labels and anti-affinity, counted by node."""

    example: Object
    on: Counter[str] = field(default_factory=Counter)
    staying_on: Counter[str] = field(default_factory=Counter)
    """As `on`, without pods that terminate."""

    @property
    def shuns_anywhere(self) -> bool:
        """Return whether these pods shun pods of other namespaces, too."""
        return any(map(_is_wide, pod_terms(self.example, "podAntiAffinity")))


class Population:
    """The pods that are on nodes, counted."""

    def __init__(self, world: World, pods: Iterable[Present]) -> None:
        self._world = world
        self._keys: dict[int, Key] = {}
        self._requests: dict[int, dict[str, Fraction]] = {}
        self._alike: dict[Key, Alike] = {}
        self._in_space: defaultdict[str, list[Alike]] = defaultdict(list)
        self._shunning_anywhere: list[Alike] = []
        self._meant: dict[tuple[Key, str], list[Alike]] = {}
        self._shunning: dict[Key, list[tuple[Alike, str]]] = {}
        self._on: defaultdict[str, list[Present]] = defaultdict(list)
        self._of: defaultdict[int, list[Present]] = defaultdict(list)
        self._taken: defaultdict[str, dict[str, Fraction]] = defaultdict(dict)
        self._claimed: Counter[tuple[str, str]] = Counter()
        for present in pods:
            self.add(present)

    def add(self, present: Present) -> None:
        self._on[present.node].append(present)
        self._of[id(present.pod)].append(present)
        self._count(present, 1)

    def remove(self, present: Present) -> None:
        self._on[present.node] = [other for other in self._on[present.node] if other is not present]
        self._of[id(present.pod)] = [other for other in self._of[id(present.pod)] if other is not present]
        self._count(present, -1)

    def on(self, node: str) -> Sequence[Present]:
        """Return the pods that are on a node."""
        return self._on[node]

    def places_of(self, pod: Object) -> Sequence[Present]:
        """Return where a pod is."""
        return self._of[id(pod)]

    def has_claim(self, claim: tuple[str, str]) -> bool:
        return self._claimed[claim] > 0

    def taken(self, node: str, resource: str) -> Fraction:
        """Return what the pods on a node request of a resource."""
        return self._taken[node].get(resource, Fraction(0))

    def requests_of(self, pod: Object) -> dict[str, Fraction]:
        """Return the requests of a pod, read once for each pod that was ever here."""
        if id(pod) not in self._of:  # not kept: its identity may be another's later
            return requests(pod)
        if id(pod) not in self._requests:
            self._requests[id(pod)] = requests(pod)
        return self._requests[id(pod)]

    def meant_by(self, terms: Sequence[Object], holder: Object) -> list[Alike]:
        """Return the pods that all of some affinity terms of a pod mean."""
        cached = self._key(holder), json.dumps(terms)
        if cached not in self._meant:
            near = self._alike.values() if all(map(_is_wide, terms)) else self._in_space[space(holder)]
            means = self._world._term_means
            self._meant[cached] = [alike for alike in near if all(means(term, holder, alike.example) for term in terms)]
        return self._meant[cached]

    def shunning(self, pod: Object) -> list[tuple[Alike, str]]:
        """Return the pods of which an anti-affinity term means this one, each with the term's topology key."""
        key = self._key(pod)
        if key not in self._shunning:
            near = (alike for alike in self._in_space[space(pod)] if not alike.shuns_anywhere)
            self._shunning[key] = [
                (alike, term["topologyKey"])
                for alike in itertools.chain(near, self._shunning_anywhere)
                for term in pod_terms(alike.example, "podAntiAffinity")
                if self._world._term_means(term, alike.example, pod)
            ]
        return self._shunning[key]

    def counted_by(self, constraint: Object, pod: Object) -> list[Alike]:
        """Return the pods that a topology spread of a pod selects."""
        if not constraint.get("labelSelector"):
            return []
        cached = self._key(pod), json.dumps(constraint)
        if cached not in self._meant:
            selects = self._world._spread_selects
            near = self._in_space[space(pod)]
            self._meant[cached] = [alike for alike in near if selects(constraint, pod, alike.example)]
        return self._meant[cached]

    def _count(self, present: Present, by: int) -> None:
        alike = self._alike.get(self._key(present.pod)) or self._begin(present.pod)
        for counts in (alike.on,) if present.terminating else (alike.on, alike.staying_on):
            counts[present.node] += by
            if not counts[present.node]:
                del counts[present.node]
        for resource, requested in self.requests_of(present.pod).items():
            self._taken[present.node][resource] = self.taken(present.node, resource) + by * requested
        for claim in claims(present.pod):
            self._claimed[claim] += by

    def _begin(self, pod: Object) -> Alike:
        alike = self._alike[self._key(pod)] = Alike(pod)
        self._in_space[space(pod)].append(alike)
        if alike.shuns_anywhere:
            self._shunning_anywhere.append(alike)
        self._meant.clear()
        self._shunning.clear()
        return alike

    def _key(self, pod: Object) -> Key:
        terms = pod_terms(pod, "podAntiAffinity")
        if id(pod) not in self._of:
            return space(pod), json.dumps(labels(pod), sort_keys=True), json.dumps(terms)
        if id(pod) not in self._keys:
            self._keys[id(pod)] = space(pod), json.dumps(labels(pod), sort_keys=True), json.dumps(terms)
        return self._keys[id(pod)]


def _is_wide(term: Object) -> bool:
    """Return whether a term means pods of other namespaces than its holder's."""
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


class QuickFilters:
    """The filters of kube-scheduler over a population that changes."""

    def __init__(self, world: World, population: Population) -> None:
        self._world = world
        self._population = population
        self._domains: dict[str, tuple[dict[str, str], int]] = {}
        self._allocatable = {
            at: {resource: amount(text) for resource, text in node["status"]["allocatable"].items()}
            for at, node in world.nodes.items()
        }

    def why_not(self, pod: Object, target: str) -> str | None:
        """Return the filter that keeps a new pod off a node."""
        return next((check for check, holds in self._checks(pod, target) if not holds), None)

    def _checks(self, pod: Object, target: str) -> Iterator[tuple[str, bool]]:
        """Yield each filter, in the order of `replay`, and whether it lets a pod pass."""
        world, population, node = self._world, self._population, self._world.nodes[target]
        yield from world.checks_of_node(pod, node).items()
        yield "room", self._has_room(pod, target)
        taken = [port for there in population.on(target) for port in ports(there.pod)]
        yield "ports", not any(ports_clash(mine, other) for mine in ports(pod) for other in taken)
        yield "volumes", world._reaches_volumes(pod, node)
        yield "claims", not any(map(population.has_claim, world.claims_held_alone(pod)))
        yield "affinity", self._finds_company(pod, node)
        yield "anti-affinity", self._is_not_shunned(pod, node)
        yield "spread", self._is_even(pod, node)

    def _has_room(self, pod: Object, target: str) -> bool:
        allocatable, population = self._allocatable[target], self._population
        if len(population.on(target)) + 1 > allocatable["pods"]:
            return False
        return all(
            wanted <= 0 or population.taken(target, resource) + wanted <= allocatable.get(resource, 0)
            for resource, wanted in population.requests_of(pod).items()
        )

    def _finds_company(self, pod: Object, node: Object) -> bool:
        terms = pod_terms(pod, "podAffinity")
        if not terms:
            return True
        if any(term["topologyKey"] not in labels(node) for term in terms):
            return False
        friends = [self._world.nodes[on] for alike in self._population.meant_by(terms, pod) for on in alike.on]
        is_first = not any(term["topologyKey"] in labels(friend) for friend in friends for term in terms)
        if is_first and all(self._world._term_means(term, pod, pod) for term in terms):
            return True
        return all(any(same_domain(term["topologyKey"], node, friend) for friend in friends) for term in terms)

    def _is_not_shunned(self, pod: Object, node: Object) -> bool:
        met = [
            (alike, term["topologyKey"])
            for term in pod_terms(pod, "podAntiAffinity")
            for alike in self._population.meant_by([term], pod)
        ]
        met += self._population.shunning(pod)
        return not any(same_domain(key, node, self._world.nodes[on]) for alike, key in met for on in alike.on)

    def _is_even(self, pod: Object, node: Object) -> bool:
        constraints = pod["spec"].get("topologySpreadConstraints", [])
        hard = [constraint for constraint in constraints if constraint["whenUnsatisfiable"] == "DoNotSchedule"]
        return all(self._is_even_for(constraint, hard, pod, node) for constraint in hard)

    def _is_even_for(self, constraint: Object, hard: list[Object], pod: Object, node: Object) -> bool:
        key = constraint["topologyKey"]
        if key not in labels(node):
            return False
        domain_of, domains = self._domain_of_nodes(constraint, hard, pod)
        counts: Counter[str] = Counter()
        for alike in self._population.counted_by(constraint, pod):
            for on, pods in alike.staying_on.items():
                if on in domain_of:
                    counts[domain_of[on]] += pods
        lowest = min(counts.values(), default=0) if len(counts) == domains else 0
        if domains < constraint.get("minDomains", 1):
            lowest = 0
        itself = 1 if self._world._spread_selects(constraint, pod, pod) else 0
        allowed: int = constraint.get("maxSkew", 1)
        return counts[labels(node)[key]] + itself - lowest <= allowed

    def _domain_of_nodes(self, constraint: Object, hard: list[Object], pod: Object) -> tuple[dict[str, str], int]:
        """Return the domain of each node whose pods count, and how many domains there are."""
        spec, key = pod["spec"], constraint["topologyKey"]
        read = {**constraint, "labelSelector": None, "maxSkew": None, "matchLabelKeys": None}
        tied = [spec.get("nodeSelector"), spec.get("affinity", {}).get("nodeAffinity"), spec.get("tolerations")]
        cached = json.dumps([read, [other["topologyKey"] for other in hard], tied])
        if cached not in self._domains:
            counts = self._world._counts_for
            nodes = self._world.nodes.items()
            domain_of = {at: labels(node)[key] for at, node in nodes if counts(constraint, hard, pod, node)}
            self._domains[cached] = domain_of, len(set(domain_of.values()))
        return self._domains[cached]


def replay_steps(items: list[Object], moves: Sequence[Object]) -> list[str]:
    """Return what is wrong with moves made one after the other in their order."""
    world = World(items)
    return list(_QuickReplay(world, sources_of(moves)).run(moves))


class _QuickReplay:
    """Judges moves among all pods and among those that surely stay, each on nodes with and without our taints."""

    def __init__(self, world: World, sources: set[str]) -> None:
        self._world = world
        present, expected = world.present(), world.expected()
        self._expected = {id(pod) for pod in expected}
        all_pods = Population(world, [*present, *expected])
        staying_pods = Population(world, [pod for pod in present if not pod.terminating])
        self._populations = all_pods, staying_pods
        views = world, world.tainted(sources)
        self._filters = [(QuickFilters(view, pods), pods) for view in views for pods in self._populations]

    def run(self, moves: Iterable[Object]) -> Iterator[str]:
        """Make the moves; yield what kube-scheduler would not do."""
        for move in moves:
            pod = self._world.pods[move["namespace"], move["pod"]]
            for filters, population in self._filters:
                yield from self._judge(filters, population, pod, move)
            for population in self._populations:
                for old in [place for place in population.places_of(pod) if id(place) not in self._expected]:
                    population.remove(old)
                    population.add(Present(pod, move["target"], old.terminating))

    def _judge(self, filters: QuickFilters, population: Population, pod: Object, move: Object) -> Iterator[str]:
        key, target = f"{move['namespace']}/{move['pod']}", move["target"]
        places = population.places_of(pod)
        if [place.node for place in places] != [move["source"]]:
            yield f"{key} is not on {move['source']}"
            return
        old, going = places[0], Present(pod, places[0].node, terminating=True)
        population.remove(old)
        if (reason := filters.why_not(pod, target)) is not None:
            yield f"{key} to {target}: {reason} (its old pod is gone)"
        population.add(going)
        if (reason := filters.why_not(pod, target)) is not None:
            yield f"{key} to {target}: {reason} (its old pod is going)"
        population.remove(going)
        population.add(old)
        if (reason := filters.why_not(placeholder_of(pod), target)) is not None:
            yield f"the place of {key} on {target}: {reason}"
