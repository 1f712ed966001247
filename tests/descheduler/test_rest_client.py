"""The example client of the page on REST asks for a plan and prints it, as it stands."""

import json
import os
import subprocess
import sys

import pytest

from berth_kube.resources import MIGRATION_PLANS
from conventions.tracked import ROOT
from descheduler.rest_server import ADMIN, ReviewingCluster, move_states, populated, serving
from waiting import eventually

PROGRAMS = {"Python": (sys.executable, "ask_for_a_plan.py"), "curl": ("sh", "ask_for_a_plan.sh")}


@pytest.mark.parametrize("language", PROGRAMS)
def test_the_example_client_prints_the_plan_that_it_asked_for(language: str) -> None:
    cluster = populated()
    known = names_of_plans(cluster)
    with serving(cluster) as url:
        environment = {**os.environ, "BERTH_URL": url, "BERTH_TOKEN": ADMIN, "NO_PROXY": "*"}
        interpreter, file = PROGRAMS[language]
        command = [interpreter, str(ROOT / "descheduler" / "docs" / file), "nightly"]
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
    if language == "Python":
        assert said == f"shop/web-0: n1 -> n2\n{name} is Proposed. 1 move frees n1.\n"
    else:
        plan = json.loads(said)
        assert [(one["pod"], one["target"]) for one in plan["moves"]] == [("web-0", "n2")]
        assert (plan["name"], plan["phase"]) == (name, "Proposed")


def names_of_plans(cluster: ReviewingCluster) -> set[str]:
    return {plan["metadata"]["name"] for plan in cluster.raw(MIGRATION_PLANS)}
