"""Capacity is held for nobody, by those who may, until the owners are given."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from berth_core import ReservationPhase
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient, connect
from berth_kube.errors import InvalidObjectError
from berth_kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RESERVATIONS, SERVICE_ACCOUNTS
from berth_sandbox.bootstrap import DESCHEDULER, request_token
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, label_owner
from reservation_stage import WHOLE_NODE, Stage, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

HOLDER = "capacity-holder"
LONG_SECONDS = 120


@pytest.fixture
def caller(sandbox: Sandbox, stage: Stage, tmp_path: Path) -> Iterator[KubeClient]:
    """Yield an account that may write Reservations, and nothing else."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    admin = stage.client
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": HOLDER}}
    admin.create(SERVICE_ACCOUNTS, account, namespace=DEFAULT_NAMESPACE)
    rule = {"apiGroups": ["batch.volcano.sh"], "resources": ["reservations"], "verbs": ["get", "create", "patch"]}
    admin.create(CLUSTER_ROLES, {**head, "kind": "ClusterRole", "metadata": {"name": HOLDER}, "rules": [rule]})
    bound = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": HOLDER}
    subject = {"kind": "ServiceAccount", "name": HOLDER, "namespace": DEFAULT_NAMESPACE}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": HOLDER}, "roleRef": bound, "subjects": [subject]}
    admin.create(CLUSTER_ROLE_BINDINGS, {**head, **binding})
    config = yaml.safe_load(sandbox.service_account_kubeconfig(DESCHEDULER).read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": request_token(admin, HOLDER)}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    with connect(kubeconfig=str(kubeconfig)) as client:
        yield client
    for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        delete_if_there(admin, resource, HOLDER)
    admin.delete(SERVICE_ACCOUNTS, HOLDER, namespace=DEFAULT_NAMESPACE)


def test_capacity_is_held_for_nobody_until_its_owners_are_given_once(stage: Stage, caller: KubeClient) -> None:
    body = build_reservation("place", cpu=WHOLE_NODE, owners=[], template=stage.template())
    with pytest.raises(InvalidObjectError, match="and the verb hold on reservations"):
        caller.create(RESERVATIONS, body, namespace=stage.namespace)

    may_hold = [{"op": "add", "path": "/rules/0/verbs/-", "value": "hold"}]
    stage.client.json_patch(CLUSTER_ROLES, HOLDER, may_hold)

    def is_created() -> bool:
        try:
            caller.create(RESERVATIONS, body, namespace=stage.namespace)
        except InvalidObjectError:
            return False
        return True

    eventually("the right is in force", is_created, seconds=LONG_SECONDS)
    stage.wait_for(ReservationPhase.AVAILABLE, seconds=LONG_SECONDS)
    stage.create_pod("owner-to-be", cpu="1")

    def give(app: str) -> None:
        caller.merge_patch(RESERVATIONS, "place", {"spec": {"owners": label_owner(app=app)}}, namespace=stage.namespace)

    eventually("it runs elsewhere", lambda: stage.pod("owner-to-be").status.phase == "Running", seconds=LONG_SECONDS)
    assert stage.wait_for(ReservationPhase.AVAILABLE).status.succeeded == 0
    give("owner")
    stage.wait_until_proven(seconds=LONG_SECONDS)
    with pytest.raises(InvalidObjectError, match="owners are immutable once there are any"):
        give("another")
    stage.create_pod("owner")
    taken = stage.wait_for(ReservationPhase.SUCCEEDED, seconds=LONG_SECONDS)
    assert [slot.owner.name for slot in taken.status.slots if slot.owner] == ["owner"]
