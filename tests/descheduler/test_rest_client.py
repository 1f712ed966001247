"""The example client of the page on REST asks for a plan and prints it, as it stands."""

import os
import subprocess
import sys

from berth_kube.resources import MIGRATION_PLANS
from conventions.tracked import ROOT
from descheduler.rest_server import ADMIN, ReviewingCluster, move_states, populated, serving
from waiting import eventually


def test_the_example_client_prints_the_plan_that_it_asked_for() -> None:
    cluster = populated()
    known = names_of_plans(cluster)
    with serving(cluster) as url:
        environment = {**os.environ, "BERTH_URL": url, "BERTH_TOKEN": ADMIN, "NO_PROXY": "*"}
        command = [sys.executable, str(ROOT / "descheduler" / "docs" / "ask_for_a_plan.py"), "nightly"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as client:
            try:
                eventually("the plan is requested", lambda: names_of_plans(cluster) - known)
                (name,) = names_of_plans(cluster) - known
                moves = [{"namespace": "shop", "pod": "web-0", "podUID": "u", "source": "n1", "target": "n2"}]
                cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"moves": moves}})
                status = {"phase": "Proposed", "message": "1 move frees n1.", "moves": move_states(("Pending",))}
                cluster.merge_patch(MIGRATION_PLANS, name, {"status": status}, subresource="status")
                said, _ = client.communicate(timeout=120)
            finally:
                client.kill()
    assert client.returncode == 0
    assert said == f"shop/web-0: n1 -> n2\n{name} is Proposed. 1 move frees n1.\n"


def names_of_plans(cluster: ReviewingCluster) -> set[str]:
    return {plan["metadata"]["name"] for plan in cluster.raw(MIGRATION_PLANS)}
