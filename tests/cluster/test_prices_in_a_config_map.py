"""The ConfigMap with the prices of instance types, read with the rights of the descheduler's account."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth_core.names import DEFAULT_NAMESPACE, NODE_PRICES_CONFIG_MAP
from berth_kube.client import KubeClient, connect
from berth_kube.errors import ForbiddenError, NotFoundError
from berth_kube.resources import CONFIG_MAPS, NODES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from service_processes import script

pytestmark = pytest.mark.cluster

TYPE = "node.kubernetes.io/instance-type"
TITLE = f"ConfigMap {DEFAULT_NAMESPACE}/{NODE_PRICES_CONFIG_MAP}"

SetPrices = Callable[[dict[str, str]], None]


@pytest.fixture
def client(cluster: Sandbox) -> Iterator[KubeClient]:
    with cluster.connect() as client:
        yield client


@pytest.fixture
def set_prices(client: KubeClient) -> Iterator[SetPrices]:
    """Yield what makes the ConfigMap anew; it is gone after the test."""

    def remove() -> None:
        with suppress(NotFoundError):
            client.delete(CONFIG_MAPS, NODE_PRICES_CONFIG_MAP, namespace=DEFAULT_NAMESPACE)

    def make(prices: dict[str, str]) -> None:
        remove()
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NODE_PRICES_CONFIG_MAP, "namespace": DEFAULT_NAMESPACE},
            "data": prices,
        }
        client.create(CONFIG_MAPS, body, namespace=DEFAULT_NAMESPACE)

    yield make
    remove()


@pytest.fixture
def nodes(cluster: Sandbox, client: KubeClient) -> Iterator[tuple[str, str]]:
    """Yield a node of the type `berth.small` and one of the type `berth.huge`, which are gone after the test."""
    made = tuple(
        name
        for size in ("small", "huge")
        for name in cluster.add_nodes(1, NodeShape(labels={TYPE: f"berth.{size}"}), prefix=f"priced-{size}-")
    )
    try:
        yield made[0], made[1]
    finally:
        for name in made:
            client.delete(NODES, name)


def berth(*arguments: str, want: int = 0) -> str:
    """Return what a command prints, or says of its input where that is wrong."""
    done = subprocess.run([script("berth"), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == want, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stderr if want else done.stdout


def planned(*source: str) -> dict[str, Any]:
    asked = ("--strategy=consolidate", "--node-price=configMap=true", "--time-limit=20", "--output=json")
    found: dict[str, Any] = json.loads(berth("plan", *source, *asked))
    return found


def test_plans_read_prices_from_the_config_map_and_a_snapshot_keeps_them(
    cluster: Sandbox, nodes: tuple[str, str], set_prices: SetPrices, tmp_path: Path
) -> None:
    small, huge = nodes
    live = f"--kubeconfig={cluster.service_account_kubeconfig('berth-descheduler')}"
    file = str(tmp_path / "cluster.json.gz")

    without = planned(live)
    set_prices({"berth.small": "0.5", "berth.huge.spot": "2"})
    found = planned(live)
    berth("snapshot", live, f"--file={file}")
    of_file = planned(f"--snapshot={file}")

    assert {small, huge} <= set(without["unpricedNodes"])
    assert any(note.startswith(f"nodePrice: {TITLE} does not exist") for note in without["predicted"]["notes"])
    for plan in (found, of_file):
        assert small not in plan["unpricedNodes"]
        assert huge in plan["unpricedNodes"]
        (note,) = (note for note in plan["predicted"]["notes"] if note.startswith(f"nodePrice: {TITLE}"))
        assert "berth.huge" in note
        assert "berth.small" not in note


@pytest.mark.usefixtures("nodes")
def test_a_wrong_price_is_named_with_the_config_map_and_its_key(cluster: Sandbox, set_prices: SetPrices) -> None:
    set_prices({"berth.small": "0,5"})
    live = f"--kubeconfig={cluster.service_account_kubeconfig('berth-descheduler')}"

    said = berth("plan", live, "--strategy=consolidate", "--node-price=configMap=true", want=2)

    assert said.startswith(f"berth: {TITLE}: data.berth.small is '0,5'; expected an amount from 0 to a million")


def test_the_account_may_read_no_other_config_map(cluster: Sandbox, set_prices: SetPrices) -> None:
    set_prices({"berth.small": "0.5"})

    with connect(kubeconfig=str(cluster.service_account_kubeconfig("berth-descheduler"))) as account:
        assert account.get(CONFIG_MAPS, NODE_PRICES_CONFIG_MAP, namespace=DEFAULT_NAMESPACE)["data"]
        for name, namespace in (("kube-root-ca.crt", DEFAULT_NAMESPACE), (NODE_PRICES_CONFIG_MAP, "default")):
            with pytest.raises(ForbiddenError):
                account.get(CONFIG_MAPS, name, namespace=namespace)
        with pytest.raises(ForbiddenError):
            account.list(CONFIG_MAPS, namespace=DEFAULT_NAMESPACE)
