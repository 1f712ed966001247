"""What pods keep in their environment is nowhere in what Berth writes, and its own namespace takes no loose pods."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ReservationPhase
from berth_kube.errors import ForbiddenError
from berth_kube.resources import EVENTS, LEASES, NAMESPACES, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import told_reasons
from reservation_stage import Stage
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

SECRET = "hunter2"


@pytest.fixture(scope="module")
def talkative(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Yield an operator that writes down all it can."""
    with running_operator(sandbox, tmp_path_factory.mktemp("operator"), "--log-level=debug") as process:
        yield process


def secretive(template: dict[str, Any], *, name: str = "main") -> dict[str, Any]:
    """Put a secret into every place of a template where people keep them."""
    container = template["spec"]["containers"][0]
    container |= {
        "name": name,
        "env": [{"name": "PASSWORD", "value": f"{SECRET}-env"}],
        "args": [f"--token={SECRET}-arg"],
        "command": ["sh", "-c", f"login {SECRET}-command"],
    }
    template["metadata"]["annotations"] = {"example.com/token": f"{SECRET}-annotation"}
    return template


def are_told(stage: Stage, name: str, reasons: list[str]) -> bool:
    return told_reasons(stage.client, name, namespace=stage.namespace) == reasons


def test_nothing_that_is_written_holds_a_pods_secrets(talkative: OperatorProcess, stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]], template=secretive(stage.template({"app": "owner"})))
    stage.reserve("invalid", template=secretive(stage.template(), name=f"NOT A NAME {SECRET[::-1]}"))
    stage.wait_until_proven()
    placeholders = json.dumps(
        stage.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=PLACEHOLDER_LABEL).items
    )
    body = {"apiVersion": "v1", "kind": "Pod", **secretive(stage.template({"app": "owner"}))}
    body["metadata"]["name"] = "owner"
    stage.client.create(PODS, body, namespace=stage.namespace)
    stage.wait_for(ReservationPhase.SUCCEEDED)
    stage.wait_for(ReservationPhase.FAILED, "invalid")
    for name, reasons in (("place", ["Available", "Succeeded"]), ("invalid", ["Invalid"])):
        eventually(f"the events of {name} are written", partial(are_told, stage, name, reasons), seconds=60)

    written = {
        "the log": talkative.tail(100_000),
        "events": json.dumps(stage.client.list(EVENTS).items),
        "statuses": json.dumps([item.get("status") for item in stage.client.list(RESERVATIONS).items]),
        "placeholders": placeholders,
        "leases": json.dumps(stage.client.list(LEASES, namespace=DEFAULT_NAMESPACE).items),
    }
    assert '"acted"' in written["the log"]
    assert SECRET[::-1] in written["statuses"]
    assert SECRET in json.dumps(stage.client.get(PODS, "owner", namespace=stage.namespace))
    assert [place for place, text in written.items() if SECRET in text] == []


def test_placeholders_and_probes_pass_the_restricted_level_of_their_namespace(
    talkative: OperatorProcess, stage: Stage
) -> None:
    labels = stage.client.get(NAMESPACES, DEFAULT_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    loose = {"apiVersion": "v1", "kind": "Pod", **stage.template()}
    loose["metadata"]["name"] = "loose"
    with pytest.raises(ForbiddenError, match="violates PodSecurity"):
        stage.client.create(PODS, loose, namespace=DEFAULT_NAMESPACE)

    template = stage.template(hostNetwork=True)
    template["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    stage.reserve(template=template)
    stage.wait_until_proven()

    (placeholder,) = stage.placeholders()
    assert placeholder.status.phase == "Running"
    talkative.require_running()
