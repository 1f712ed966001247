"""Pods are of one class just where no rule tells them apart."""

from collections.abc import Callable

import msgspec
import pytest

from berth_core import ContainerPort, ContainerStatus, Pod, ResourceRequirements, Toleration
from berth_descheduler.planner.simulation.pod_classes import PodClasses
from builders import container, owner, pod, sidecar
from planner.clusters import apart, claimed, expression, spread, term, tied


def resized(made: Pod, cpu: str) -> Pod:
    """A pod of which the kubelet says that its container has other amounts than it asks for."""
    has = ContainerStatus(name="app", ready=True, resources=ResourceRequirements(requests={"cpu": cpu}))
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, container_statuses=(has,)))


APART: dict[str, Callable[[], Pod]] = {
    "labels": lambda: pod("other", labels={"app": "db"}),
    "the namespace": lambda: pod("other", namespace="shop"),
    "the controller": lambda: pod("other", controller=owner(name="db")),
    "the kind of controller": lambda: pod("other", controller=owner("StatefulSet", uid="uid-replicaset-web")),
    "requests": lambda: pod("other", cpu="200m"),
    "extended requests": lambda: pod("other", requests={"nvidia.com/gpu": "1"}),
    "an init container": lambda: pod("other", init_containers=(container("prepare", cpu="2"),)),
    "a sidecar": lambda: pod("other", init_containers=(sidecar(cpu="2"),)),
    "overhead": lambda: pod("other", overhead={"cpu": "1"}),
    "requests of the pod as a whole": lambda: pod("other", pod_level={"cpu": "1"}),
    "the priority": lambda: pod("other", priority=7),
    "the node selector": lambda: pod("other", node_selector={"disk": "ssd"}),
    "node affinity": lambda: pod("other", affinity=tied(expression("disk", "Exists"))),
    "anti-affinity": lambda: pod("other", affinity=apart(term())),
    "tolerations": lambda: pod("other", tolerations=(Toleration(key="dedicated", operator="Exists"),)),
    "spread": lambda: pod("other", spread=(spread(),)),
    "host ports": lambda: pod("other", host_ports=(80,)),
    "the host port's address": lambda: pod(
        "other",
        containers=(
            container(
                cpu="100m", memory="64Mi", ports=(ContainerPort(container_port=80, host_port=80, host_ip="10.0.0.1"),)
            ),
        ),
    ),
    "claims": lambda: pod("other", volumes=(claimed(),)),
    "what it was granted": lambda: resized(pod("other"), "3"),
}

ALIKE: dict[str, Callable[[], Pod]] = {
    "the name": lambda: pod("other"),
    "the node": lambda: pod("other", node="b"),
    "the image": lambda: pod("other", containers=(container(cpu="100m", memory="64Mi", image="other"),)),
    "an annotation": lambda: pod("other", annotations={"note": "x"}),
    "readiness": lambda: pod("other", node="b", ready=False),
}


def classes(other: Pod) -> int:
    book = PodClasses()
    return len({book.class_of(pod("one")), book.class_of(other), book.class_of(pod("third"))})


@pytest.mark.parametrize("make", APART.values(), ids=APART.keys())
def test_what_a_rule_looks_at_tells_pods_apart(make: Callable[[], Pod]) -> None:
    assert classes(make()) == 2


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE.keys())
def test_what_no_rule_looks_at_does_not(make: Callable[[], Pod]) -> None:
    assert classes(make()) == 1


@pytest.mark.parametrize("name", ["claims", "tolerations", "the node selector"])
def test_pods_that_are_otherwise_equal_do_not_share_an_answer(name: str) -> None:
    book = PodClasses()

    plain, other = book.class_of(pod("one")), book.class_of(APART[name]())

    assert book.classes[plain].example.metadata.name == "one"
    assert book.classes[other].example.metadata.name == "other"
