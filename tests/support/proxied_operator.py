"""The operator whose calls to the API server go through a proxy that disturbs them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from berth_sandbox.sandbox import Sandbox
from fault_proxy import FaultProxy
from faults import LONGEST_HOLD_SECONDS, Call, Hold, HoldPlan, NoFaults
from service_processes import OperatorProcess, running_operator


@pytest.fixture(scope="module")
def proxy(sandbox: Sandbox) -> Iterator[FaultProxy]:
    """Yield a proxy between the operator of a module and the API server."""
    with FaultProxy(sandbox.service_account_kubeconfig("berth-operator")) as started:
        yield started


@pytest.fixture(scope="module")
def operator(
    sandbox: Sandbox, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Yield one operator for all tests of a module; started again after a kill, it has its lease at once.

    It waits for the answer to a call for as long as a test holds that.
    """
    folder = tmp_path_factory.mktemp("operator")
    through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
    options = ("--identity=the-operator", f"--kubeconfig={through}")
    with running_operator(sandbox, folder, *options, request_seconds=LONGEST_HOLD_SECONDS) as process:
        yield process


@pytest.fixture(autouse=True)
def undisturbed(proxy: FaultProxy) -> Iterator[None]:
    """Let everything through again after a test, however it ends."""
    yield
    proxy.plan = NoFaults()


def calls(proxy: FaultProxy) -> list[Call]:
    """Return the calls that the proxy remembers."""
    return [call for call, _ in list(proxy.journal)]


@contextmanager
def held(proxy: FaultProxy, plan: HoldPlan) -> Iterator[Hold]:
    """Let a call be held from here; at the end of the block it goes on, and nothing is held any more."""
    proxy.plan = plan
    try:
        yield plan.held
    finally:
        proxy.plan = NoFaults()
        plan.held.released.set()


__all__ = ["calls", "held", "operator", "proxy", "undisturbed"]
