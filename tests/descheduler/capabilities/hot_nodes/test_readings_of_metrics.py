"""What the metrics API says is read exactly, and what does not count is named."""

from datetime import timedelta
from typing import Any

import pytest

from berth_core.clock import format_timestamp
from berth_core.errors import InputError
from berth_core.object_lists import RawObject
from berth_descheduler.capabilities.hot_nodes.plugin import HotNodes
from berth_descheduler.capabilities.hot_nodes.readings import Reading, Unusable, read_node, read_pod
from berth_descheduler.capabilities.hot_nodes.rule import coarse_cpu, coarse_memory
from builders import NOON
from descheduler.capabilities.hot_nodes.metrics_objects import node_reading, pod_reading

BOTH = ("cpu", "memory")


@pytest.mark.parametrize(
    ("cpu", "memory", "nanos", "size"),
    [
        ("12345678n", "512Ki", 12_345_678, 512 << 10),
        ("250m", "1Gi", 250_000_000, 1 << 30),
        ("0", "0", 0, 0),
        ("1500u", "1e3", 1_500_000, 1000),
        (2, 1024, 2_000_000_000, 1024),
        ("0.1n", "1500m", 1, 2),
    ],
)
def test_quantities_are_read_exactly(cpu: Any, memory: Any, nanos: int, size: int) -> None:  # noqa: ANN401
    reading = read_node(node_reading("a", cpu, memory), BOTH, NOON)

    assert isinstance(reading, Reading)
    assert reading.use == {"cpu": nanos, "memory": size}
    assert reading.at == NOON


@pytest.mark.parametrize("cpu", ["-5m", "lots", "", None, True, [], {}, "9" * 300])
def test_what_is_no_amount_is_named(cpu: Any) -> None:  # noqa: ANN401
    reading = read_node(node_reading("a", cpu), BOTH, NOON)

    assert isinstance(reading, Unusable)
    assert reading.why.startswith("unreadable: usage.cpu is")


@pytest.mark.parametrize("usage", [None, [], "1", {}, {"memory": "1Gi"}])
def test_a_reading_without_an_amount_does_not_count(usage: Any) -> None:  # noqa: ANN401
    assert isinstance(read_node(node_reading("a", usage=usage), BOTH, NOON), Unusable)


def test_only_what_is_looked_at_has_to_be_there() -> None:
    assert isinstance(read_node(node_reading("a", usage={"memory": "1Gi"}), ("memory",), NOON), Reading)


def test_a_pod_uses_what_its_containers_use_together() -> None:
    reading = read_pod(pod_reading("p", "100m", "1n", memory="1Mi"), BOTH, NOON)

    assert isinstance(reading, Reading)
    assert reading.use == {"cpu": 100_000_001, "memory": 2 << 20}


@pytest.mark.parametrize("containers", [None, [], {}, [None], [{"name": "c"}], [{"usage": {"cpu": "1"}}]])
def test_a_pod_of_which_a_container_is_unknown_does_not_count(containers: Any) -> None:  # noqa: ANN401
    assert isinstance(read_pod(pod_reading("p", containers=containers), BOTH, NOON), Unusable)


def aged(seconds: float, window: Any = "15s") -> RawObject:  # noqa: ANN401
    return node_reading("a", timestamp=format_timestamp(NOON - timedelta(seconds=seconds)), window=window)


@pytest.mark.parametrize(
    "fresh",
    [aged(0), aged(120), aged(-120), aged(300, "1m0s"), aged(299, "59.9s"), aged(120, "nonsense"), aged(120, None)],
)
def test_a_reading_counts_for_five_windows_and_for_two_minutes_at_least(fresh: RawObject) -> None:
    assert isinstance(read_node(fresh, BOTH, NOON), Reading)


@pytest.mark.parametrize(
    ("stale", "why"),
    [
        (aged(121), "2m1s old"),
        (aged(301, "1m0s"), "5m1s old"),
        (aged(121, "-1h"), "2m1s old"),
        (aged(-121), "2m1s ahead of the time"),
        (node_reading("a", timestamp=None), "of an unreadable time, None"),
        (node_reading("a", timestamp="yesterday"), "of an unreadable time, 'yesterday'"),
    ],
)
def test_a_stale_reading_says_so(stale: RawObject, why: str) -> None:
    assert read_node(stale, BOTH, NOON) == Unusable(why)


def test_without_a_time_no_reading_is_stale() -> None:
    assert isinstance(read_node(aged(10**6), BOTH, None), Reading)


# --- arguments ---


def test_thresholds_are_exact_and_have_defaults() -> None:
    assert HotNodes.parse({}).target_usage.to_mapping() == {"cpu": 70, "memory": 80}
    assert HotNodes.parse({"targetUsage": {"cpu": "62.5%"}}).target_usage.to_mapping() == {"cpu": "62.5"}


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"targetUsage": {"cpu": 0}}, "targetUsage.cpu"),
        ({"targetUsage": {"cpu": 101}}, "targetUsage.cpu"),
        ({"targetUsage": {"memory": -1}}, "targetUsage.memory"),
        ({"targetUsage": {"cpu": True}}, "targetUsage.cpu"),
        ({"targetUsage": {"nvidia.com/gpu": 50}}, "targetUsage.nvidia.com/gpu"),
        ({"targetUsage": {}}, "targetUsage"),
        ({"targetUsage": None}, "targetUsage"),
        ({"targetUsages": {"cpu": 70}}, "args"),
    ],
)
def test_thresholds_that_make_no_sense_are_errors_that_name_the_field(args: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        HotNodes.parse(args)

    assert raised.value.field == field


# --- rounding ---


@pytest.mark.parametrize("millis", [5, 10, 100, 120, 200, 250, 325, 500, 650, 1000, 1500, 3000, 10_000])
def test_usual_amounts_of_cpu_stay_as_they_are(millis: int) -> None:
    assert coarse_cpu(millis * 10**6) == millis * 10**6


@pytest.mark.parametrize("size", [0, 8 << 20, 128 << 20, 1 << 30, 3 << 29, 5 << 30])
def test_usual_amounts_of_memory_stay_as_they_are(size: int) -> None:
    assert coarse_memory(size) == size


@pytest.mark.parametrize("amount", [1, 999, 12_345_678, 123_456_789, 987_654_321, 10**10 + 1, 2**40 + 1])
def test_use_is_rounded_up_by_an_eighth_or_a_small_step_at_most(amount: int) -> None:
    assert amount <= coarse_cpu(amount) <= amount + max(amount // 8, 5 * 10**6)
    assert amount <= coarse_memory(amount) <= amount + max(amount // 8, 8 << 20)
