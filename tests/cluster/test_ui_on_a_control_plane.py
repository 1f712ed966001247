"""The page at `/ui` before a real cluster: plans are aborted and approved by clicks, and their pods move meanwhile."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_kube import KubeClient
from berth_kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, MIGRATION_PLANS, NAMESPACES, PODS
from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from browser import Browser, browsing
from cluster.test_rest import NAMESPACE as CALLERS
from cluster.test_rest import RIGHTS, make_caller
from cluster_objects import build_deployment
from control_planes import control_plane
from descheduler.test_ui_in_a_browser import DESK, PHONE, TOO_WIDE, click, has_text, sign_in, until
from relays import LOOPBACK, Relay
from service_processes import running_operator, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(900)]

PICTURES: Final = "BERTH_UI_PICTURES"
"""A folder that screenshots are written to, for people."""

NODES: Final = 10
SHOP: Final = "ui-shop"
LEAST_MOVES: Final = 20
POLICY: Final[dict[str, Any]] = {
    "apiVersion": "berth.volcano.sh/v1alpha1",
    "kind": "DeschedulerPolicy",
    "metadata": {"name": "ui-nightly"},
    "spec": {
        "mode": "Approve",
        "profiles": [
            {
                "name": "default",
                "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "Consolidate"}}],
                "plugins": {"balance": {"enabled": ["Defragmentation"]}},
            }
        ],
        "limits": {"maxMoves": 30, "maxMovesPerController": 5, "podCoolDown": "0s"},
    },
}
HELD: Final = {"apiGroups": ["batch.volcano.sh"], "resources": ["reservations"], "verbs": ["list"]}


@pytest.fixture(scope="module")
def plane() -> Iterator[Sandbox]:
    """Yield a control plane with ten nodes, each of which has about five pods, and a running operator."""
    with control_plane() as started:
        started.add_nodes(NODES)
        with started.connect() as client:
            for namespace in (SHOP, CALLERS):
                client.create(NAMESPACES, {"metadata": {"name": namespace}})
            for number in range(NODES):
                body = build_deployment(f"web-{number}", replicas=5, cpu="1")
                client.create(DEPLOYMENTS, body, namespace=SHOP)
            client.create(DESCHEDULER_POLICIES, POLICY)
            eventually("every pod runs", lambda: running_pods(client) == 5 * NODES)
        yield started


def running_pods(client: KubeClient) -> int:
    pods = client.list(PODS, namespace=SHOP).items
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def service(sandbox: Sandbox, folder: Path, port: int) -> ServiceProcess:
    return ServiceProcess(
        [
            script("berth-descheduler"),
            f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
            *("--policies", "--health-address=127.0.0.1:0", "--fragmentation-interval=2s"),
            *(f"--rest-address=127.0.0.1:{port}", "--rest-ui"),
        ],
        folder / f"berth-descheduler-{port}.log",
    )


def request_plan(client: KubeClient, url: str, token: str) -> str:
    """Ask for a run and return its plan's name once the plan waits for an approval."""
    headers = {"Authorization": f"Bearer {token}"}
    with requests.Session() as session:
        session.trust_env = False

        def is_requested() -> bool:
            try:
                answer = session.post(f"{url}/v1/runs", headers=headers, json={"policy": "ui-nightly"}, timeout=60)
            except requests.exceptions.ConnectionError:
                return False
            names.extend([answer.json()["plan"]] if answer.ok else [])
            return answer.ok

        names: list[str] = []
        eventually("a run is requested", is_requested)
    eventually("the run has planned", lambda: read(client, names[0]).phase is not PlanPhase.REQUESTED)
    plan = read(client, names[0])
    assert plan.phase is PlanPhase.PROPOSED, plan.status.message
    return names[0]


def read(client: KubeClient, plan: str) -> MigrationPlan:
    return client.get(MIGRATION_PLANS, plan, type=MigrationPlan)


def keep_picture(browser: Browser, name: str) -> None:
    if folder := os.environ.get(PICTURES):
        Path(folder, f"{name}.png").write_bytes(browser.picture())


def look_from_all_sides(browser: Browser, moment: str) -> None:
    """Find nothing amiss on the page on a desk and a phone, in light and in dark."""
    for width, scheme in ((DESK, "light"), (DESK, "dark"), (PHONE, "light")):
        browser.show(width=width, scheme=scheme)
        keep_picture(browser, f"{moment}-{width}-{scheme}")
        assert browser.evaluate(TOO_WIDE) <= 0
        assert browser.find_barriers() == []
    browser.show(width=DESK, scheme="light")


def test_pods_are_watched_as_a_plan_is_carried_out_that_clicks_approved(plane: Sandbox, tmp_path: Path) -> None:
    port, entrance = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as leaving:
        client = leaving.enter_context(plane.connect())
        token = make_caller(client, leaving, "ui-runner", [*RIGHTS["runner"], HELD])
        leaving.enter_context(running_operator(plane, tmp_path))
        leaving.enter_context(service(plane, tmp_path, port))
        way = leaving.enter_context(ExitStack())
        way.enter_context(Relay((LOOPBACK, port), port=entrance))
        browser = leaving.enter_context(browsing())

        unwanted = request_plan(client, url, token)
        sign_in(browser, f"http://{LOOPBACK}:{entrance}", token)
        abort_by_clicks(browser, unwanted)
        eventually("the plan is aborted", lambda: read(client, unwanted).phase is PlanPhase.ABORTED)
        until(browser, has_text("#plan-phase", "Aborted"))
        assert running_pods(client) == 5 * NODES

        wanted = request_plan(client, url, token)
        moves = len(read(client, wanted).spec.moves)
        assert moves >= LEAST_MOVES
        approve_by_clicks(browser, wanted, moves)
        until(browser, "window.seen.size > 2")
        keep_picture(browser, "under-way")

        way.close()
        until(browser, has_text("#connection", "The connection is lost"))
        leaving.enter_context(Relay((LOOPBACK, port), port=entrance))
        until(browser, has_text("#connection", "Live"))
        eventually("the plan is over", lambda: read(client, wanted).phase.terminal, seconds=300)
        until(
            browser, f"{has_text('#plan-phase', 'Succeeded')} && {has_text('#plan', f'{moves} of {moves} moves over')}"
        )

        plan = read(client, wanted)
        assert (plan.phase, plan.spec.approved_by) == (
            PlanPhase.SUCCEEDED,
            f"system:serviceaccount:{CALLERS}:ui-runner",
        )
        assert {move.state for move in plan.status.moves} == {MoveState.LANDED}
        assert browser.evaluate("window.marked"), "no node was marked while pods left it"
        empty = "[...document.querySelectorAll('#nodes .map button.empty')].length"
        until(browser, f"{empty} >= {len(plan.spec.predicted.freed_nodes)}")
        until(browser, "document.querySelector('#history .chart')")
        look_from_all_sides(browser, "over")


def abort_by_clicks(browser: Browser, plan: str) -> None:
    click(browser, f"[data-key={plan}]")
    until(browser, has_text("#plan h3", plan))
    click(browser, "#abort")
    until(browser, has_text("#confirm-text", "cannot be undone"))
    click(browser, "#confirm-yes")
    until(browser, "!document.querySelector('#confirm').open")


def approve_by_clicks(browser: Browser, plan: str, moves: int) -> None:
    """Approve a plan; from then on `seen` has every progress that the page showed, `marked` whether nodes were."""
    click(browser, f"[data-key={plan}]")
    until(browser, f"{has_text('#plan h3', plan)} && document.querySelector('#approve')")
    look_from_all_sides(browser, "waiting")
    browser.evaluate(
        """window.seen = new Set(); window.marked = false;
        new MutationObserver(() => {
          const label = document.querySelector('label[for=moved]')?.textContent;
          if (label) window.seen.add(label);
          window.marked ||= Boolean(document.querySelector('#nodes .leaves'));
        }).observe(document, {subtree: true, childList: true, attributes: true, characterData: true}); undefined"""
    )
    click(browser, "#approve")
    until(browser, has_text("#confirm-text", f"{moves} pods will be moved"))
    click(browser, "#confirm-yes")
    until(browser, "!document.querySelector('#confirm').open")
