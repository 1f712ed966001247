from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import Container, ContainerStatus, Pod, PodCondition, PodSpec, ResourceRequirements
from berth_core.errors import InputError
from berth_core.pod_requests import effective_requests, occupied_requests
from berth_core.resources import ResourceAmounts
from builders import container, node, pod, pod_spec, sidecar

GI = 1 << 30


@dataclass(frozen=True)
class Sum:
    spec: PodSpec
    want: dict[str, int] = field(default_factory=dict)


SUMS = {
    "a pod that asks for nothing takes nothing": Sum(pod_spec(containers=[container()])),
    "containers add up": Sum(
        pod_spec(containers=[container(cpu="500m", memory="1Gi"), container(cpu="1", memory="1Gi")]),
        {"cpu": 1500, "memory": 2 * GI},
    ),
    "a container that asks for nothing adds nothing": Sum(
        pod_spec(containers=[container(cpu="500m"), container()]), {"cpu": 500}
    ),
    "a limit without a request is a request, as in every pod that the API server stores": Sum(
        PodSpec(containers=(Container(name="a", resources=ResourceRequirements(limits={"cpu": "4"})),)), {"cpu": 4000}
    ),
    "a limit beside a request of the same resource does not count": Sum(
        PodSpec(
            containers=(
                Container(
                    name="a",
                    resources=ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "4", "memory": "1Gi"}),
                ),
            )
        ),
        {"cpu": 1000, "memory": GI},
    ),
    "an init container that asks for less is free": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(cpu="500m")]), {"cpu": 1000}
    ),
    "an init container that asks for more counts alone": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(cpu="2")]), {"cpu": 2000}
    ),
    "init containers run one after the other": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(cpu="2"), container(cpu="3")]),
        {"cpu": 3000},
    ),
    "the maximum is taken for each resource": Sum(
        pod_spec(containers=[container(cpu="1", memory="2Gi")], init_containers=[container(cpu="2", memory="1Gi")]),
        {"cpu": 2000, "memory": 2 * GI},
    ),
    "an init container may ask for what no container asks for": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(requests={"nvidia.com/gpu": "1"})]),
        {"cpu": 1000, "nvidia.com/gpu": 1},
    ),
    "a sidecar runs beside the containers": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[sidecar(cpu="500m")]), {"cpu": 1500}
    ),
    "an init container runs beside the sidecars before it": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[sidecar(cpu="500m"), container(cpu="2")]),
        {"cpu": 2500},
    ),
    "an init container does not run beside the sidecars after it": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(cpu="2"), sidecar(cpu="500m")]),
        {"cpu": 2000},
    ),
    "sidecars alone can be the most": Sum(
        pod_spec(
            containers=[container(cpu="100m")],
            init_containers=[sidecar("a", cpu="1"), container(cpu="1500m"), sidecar("b", cpu="2")],
        ),
        {"cpu": 3100},
    ),
    "the overhead is added to whatever is the most": Sum(
        pod_spec(
            containers=[container(cpu="1")],
            init_containers=[container(cpu="2")],
            overhead={"cpu": "250m", "memory": "120Mi"},
        ),
        {"cpu": 2250, "memory": 120 << 20},
    ),
    "what the pod asks for as a whole counts instead": Sum(
        pod_spec(containers=[container(cpu="1", memory="1Gi")], pod_level={"cpu": "3"}),
        {"cpu": 3000, "memory": GI},
    ),
    "as a whole a pod may ask for less than its containers": Sum(
        pod_spec(containers=[container(cpu="1")], init_containers=[container(cpu="9")], pod_level={"cpu": "2"}),
        {"cpu": 2000},
    ),
    "as a whole a pod may ask for nothing of a resource": Sum(
        pod_spec(containers=[container(cpu="1", memory="1Gi")], pod_level={"cpu": "0"}), {"memory": GI}
    ),
    "huge pages can be asked for as a whole": Sum(
        pod_spec(containers=[container(requests={"hugepages-2Mi": "2Mi"})], pod_level={"hugepages-2Mi": "8Mi"}),
        {"hugepages-2Mi": 8 << 20},
    ),
    "other resources cannot, and are not looked at": Sum(
        pod_spec(containers=[container(requests={"nvidia.com/gpu": "1"})], pod_level={"nvidia.com/gpu": "4"}),
        {"nvidia.com/gpu": 1},
    ),
    "the overhead is added to what the pod asks for as a whole": Sum(
        pod_spec(containers=[container(cpu="1")], pod_level={"cpu": "2"}, overhead={"cpu": "100m"}), {"cpu": 2100}
    ),
    "a limit of the pod as a whole does not count beside what its containers ask for": Sum(
        msgspec.structs.replace(
            pod_spec(containers=[container(cpu="1")]), resources=ResourceRequirements(limits={"cpu": "8"})
        ),
        {"cpu": 1000},
    ),
    "a limit of the pod as a whole is a request where no container asks for that resource": Sum(
        msgspec.structs.replace(
            pod_spec(containers=[container(cpu="1")]),
            resources=ResourceRequirements(limits={"memory": "1Gi", "nvidia.com/gpu": "1"}),
        ),
        {"cpu": 1000, "memory": GI},
    ),
}


@pytest.mark.parametrize("case", SUMS.values(), ids=SUMS.keys())
def test_a_pod_takes_what_the_scheduler_says(case: Sum) -> None:
    assert effective_requests(case.spec) == ResourceAmounts(case.want)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 5), max_size=2)


def moments(
    containers: list[dict[str, int]], init_containers: list[tuple[bool, dict[str, int]]]
) -> list[list[dict[str, int]]]:
    """What runs at the same time, step by step through the life of a pod."""
    steps: list[list[dict[str, int]]] = []
    sidecars: list[dict[str, int]] = []
    for stays, amounts in init_containers:
        steps.append([*sidecars, amounts])
        if stays:
            sidecars.append(amounts)
    return [*steps, [*sidecars, *containers]]


@given(st.lists(AMOUNTS, min_size=1, max_size=3), st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=5))
def test_a_pod_takes_the_most_that_ever_runs_at_once(
    containers: list[dict[str, int]], init_containers: list[tuple[bool, dict[str, int]]]
) -> None:
    def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
        return {name: str(amount) for name, amount in amounts.items()}

    spec = pod_spec(
        containers=[container(requests=quantities(one)) for one in containers],
        init_containers=[
            container(requests=quantities(one), restart_policy="Always" if stays else "")
            for stays, one in init_containers
        ],
    )
    steps = moments(containers, init_containers)
    most = {n: max(sum(one.get(n, 0) for one in step) for step in steps) for n in ("cpu", "memory")}
    assert effective_requests(spec) == ResourceAmounts({"cpu": most["cpu"] * 1000, "memory": most["memory"]})


def resized(
    *,
    has: dict[str, str] | None = None,
    granted: dict[str, str] | None = None,
    infeasible: bool = False,
    init: bool = False,
    stays: bool = True,
    container_name: str = "app",
) -> Pod:
    """A pod that asks for one core, with a status of its container or, if `init`, of its init container."""
    resources = None if has is None else ResourceRequirements(requests=has)
    status = ContainerStatus(name=container_name, resources=resources, allocated_resources=granted or {})
    init_containers = [container("init", cpu="1", restart_policy="Always" if stays else "")] if init else []
    made = pod(containers=[container(cpu="1")], init_containers=init_containers)
    conditions = (PodCondition(type="PodResizePending", status="True", reason="Infeasible"),) if infeasible else ()
    statuses = {"init_container_statuses" if init else "container_statuses": (status,)}
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions, **statuses))


def as_a_whole(
    asked: str | None,
    *,
    has: str | None = None,
    granted: str | None = None,
    infeasible: bool = False,
    overhead: dict[str, str] | None = None,
) -> Pod:
    """A pod with a container that asks for one core, and what the pod as a whole asks for, has and was granted."""
    made = pod(containers=[container(cpu="1")], pod_level=None if asked is None else {"cpu": asked}, overhead=overhead)
    status = msgspec.structs.replace(
        made.status,
        conditions=(PodCondition(type="PodResizePending", status="True", reason="Infeasible"),) if infeasible else (),
        resources=None if has is None else ResourceRequirements(requests={"cpu": has}),
        allocated_resources={} if granted is None else {"cpu": granted},
    )
    return msgspec.structs.replace(made, status=status)


@dataclass(frozen=True)
class Resize:
    pod: Pod
    want_cpu: int


RESIZES = {
    "a pod that nobody resizes takes what its spec says": Resize(pod(cpu="1"), 1000),
    "a status without resources changes nothing": Resize(resized(), 1000),
    "shrinking, it takes what it still has": Resize(resized(has={"cpu": "4"}, granted={"cpu": "2"}), 4000),
    "growing, it takes what it was granted": Resize(resized(has={"cpu": "500m"}, granted={"cpu": "2"}), 2000),
    "growing, it takes what it asks for": Resize(resized(has={"cpu": "500m"}, granted={"cpu": "500m"}), 1000),
    "what it asks for does not count when it can never be": Resize(
        resized(has={"cpu": "500m"}, granted={"cpu": "250m"}, infeasible=True), 500
    ),
    "a container of another name does not matter": Resize(resized(has={"cpu": "4"}, container_name="gone"), 1000),
    "a sidecar can be resized": Resize(resized(has={"cpu": "2"}, init=True, container_name="init"), 3000),
    "what an init container had counts, too": Resize(
        resized(has={"cpu": "9"}, init=True, stays=False, container_name="init"), 9000
    ),
    "a container may have been granted more than its status says otherwise": Resize(
        resized(granted={"cpu": "2"}), 2000
    ),
    "what it was granted is all that is known of one that can never be": Resize(
        resized(granted={"cpu": "500m"}, infeasible=True), 1000
    ),
    "growing as a whole, the pod takes what it asks for": Resize(as_a_whole("3", has="1", granted="2"), 3000),
    "growing as a whole, it takes what it was granted": Resize(as_a_whole("1", has="500m", granted="2"), 2000),
    "shrinking as a whole, it takes what it still has": Resize(as_a_whole("1", has="5", granted="1"), 5000),
    "what it has as a whole includes the overhead": Resize(
        as_a_whole("1", has="5", granted="5", overhead={"cpu": "500m"}), 5000
    ),
    "as a whole, what it asks for does not count when it can never be": Resize(
        as_a_whole("9", has="2", granted="1", infeasible=True), 2000
    ),
    "as a whole, what it asks for is all that is known": Resize(as_a_whole("9", infeasible=True), 9000),
    "a pod has as a whole what only its containers ask for": Resize(as_a_whole(None, has="5", granted="4"), 5000),
    "a pod was granted as a whole what only its containers ask for": Resize(as_a_whole(None, granted="4"), 4000),
}


@pytest.mark.parametrize("case", RESIZES.values(), ids=RESIZES.keys())
def test_a_pod_that_is_resized_in_place_takes_the_most(case: Resize) -> None:
    assert occupied_requests(case.pod).get("cpu") == case.want_cpu


@dataclass(frozen=True)
class Bad:
    spec: PodSpec
    want: str


BAD = {
    "of a container": Bad(
        pod_spec(containers=[container("web", cpu="5cores")]),
        "spec.containers[web].resources.requests.cpu is '5cores'",
    ),
    "of an init container": Bad(
        pod_spec(init_containers=[container("prepare", memory="-1Gi")]),
        "spec.initContainers[prepare].resources.requests.memory is '-1Gi'",
    ),
    "of the overhead": Bad(pod_spec(overhead={"cpu": "x"}), "spec.overhead.cpu is 'x'"),
    "of the pod as a whole": Bad(pod_spec(pod_level={"cpu": "x"}), "spec.resources.requests.cpu is 'x'"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_quantity_is_named_by_its_field(case: Bad) -> None:
    with pytest.raises(InputError) as caught:
        effective_requests(case.spec)
    assert str(caught.value).startswith(case.want)


def test_a_bad_quantity_of_a_status_is_named_by_its_field() -> None:
    with pytest.raises(InputError) as caught:
        occupied_requests(resized(has={"cpu": "x"}))
    assert str(caught.value).startswith("status.containerStatuses[app].resources.requests.cpu is 'x'")


def test_the_pods_slot_is_not_among_its_requests() -> None:
    assert effective_requests(pod_spec()).get("pods") == 0
    assert ResourceAmounts.from_quantities(node().status.allocatable).get("pods") == 110
