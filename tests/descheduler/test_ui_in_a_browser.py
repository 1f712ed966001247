"""The page at `/ui` in a real browser: decided by clicks, followed live, kept through a lost connection."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from berth_core import Taint
from berth_core.labels import DRAINING_TAINT, REVOCABLE_ZONE_LABEL
from berth_core.snapshot import Snapshot
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.doctor import rights_asked_for
from berth_descheduler.planner import report_capacity
from berth_kube.resources import MIGRATION_PLANS, NODES, RESERVATION_WINDOWS
from berth_sandbox.ports import free_port
from browser import Browser, browsing
from builders import node, pod
from descheduler.rest_server import ADMIN, READER, ReviewingCluster, add_plan, move_states, populated, quick, serving
from window_simulation import window_body

pytestmark = pytest.mark.deep

PHONE: Final = 390
DESK: Final = 1280
MOVES: Final = 20
TOO_WIDE: Final = "document.documentElement.scrollWidth - innerWidth"
SECONDS: Final = 60


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as opened:
        yield opened


@pytest.fixture
def cluster() -> ReviewingCluster:
    populated_cluster = populated()
    add_plan(populated_cluster, "plan-of-twenty", states=("Pending",) * MOVES)
    return populated_cluster


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster, replace(quick(), ui=True)) as address:
        yield address


def until(browser: Browser, condition: str) -> None:
    """Wait until a condition holds in the page, looking after each of its changes."""
    script = f"""new Promise((resolve, reject) => {{
      const look = () => ({condition}) && (watching.disconnect(), clearTimeout(late), resolve());
      const watching = new MutationObserver(look);
      const late = setTimeout(() => reject(new Error(document.body.innerText)), {SECONDS * 1000});
      watching.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
      look();
    }})"""
    browser.evaluate(script)


def has_text(selector: str, text: str) -> str:
    return f"document.querySelector({json.dumps(selector)})?.textContent.includes({json.dumps(text)})"


def click(browser: Browser, selector: str) -> None:
    until(browser, f"document.querySelector({json.dumps(selector)})?.checkVisibility()")
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def give_token(browser: Browser, url: str, token: str, *, width: int = DESK, scheme: str = "light") -> None:
    browser.open(f"{url}/ui", width=width, scheme=scheme)
    until(browser, "document.querySelector('#sign-in').checkVisibility()")
    browser.evaluate(f"document.querySelector('#token').value = {json.dumps(token)}")
    click(browser, "#sign-in button")


def sign_in(browser: Browser, url: str, token: str = ADMIN, *, width: int = DESK, scheme: str = "light") -> None:
    """Open the page and wait until it shows the cluster: its parts are filled in while it is still hidden."""
    give_token(browser, url, token, width=width, scheme=scheme)
    until(browser, "document.querySelector('#cluster').checkVisibility()")


def set_states(cluster: ReviewingCluster, name: str, phase: str, *states: str) -> None:
    body = {"status": {"phase": phase, "moves": move_states(states)}}
    cluster.merge_patch(MIGRATION_PLANS, name, body, subresource="status")


def test_a_plan_is_approved_by_clicks_and_its_moves_are_watched(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    sign_in(browser, url)
    click(browser, "[data-key=plan-of-twenty]")
    until(browser, has_text("#plan h3", "plan-of-twenty"))
    click(browser, "#approve")
    until(browser, has_text("#confirm-text", f"{MOVES} pods will be moved"))
    assert not cluster.get(MIGRATION_PLANS, "plan-of-twenty")["spec"].get("approved")
    click(browser, "#confirm-yes")
    until(browser, "!document.querySelector('#confirm').open")
    spec = cluster.get(MIGRATION_PLANS, "plan-of-twenty")["spec"]
    assert (spec["approved"], spec["approvedBy"]) == (True, "admin")

    set_states(cluster, "plan-of-twenty", "Running", *["Evicted"] * MOVES)
    until(browser, "document.querySelector('[data-node=n1].leaves') && document.querySelector('[data-node=n2].gains')")
    for landed in range(1, MOVES + 1):
        states = ["Landed"] * landed + ["Evicted"] * (MOVES - landed)
        set_states(cluster, "plan-of-twenty", "Running", *states)
        until(browser, has_text("#plan", f"{landed} of {MOVES} moves over"))
    set_states(cluster, "plan-of-twenty", "Succeeded", *["Landed"] * MOVES)
    until(browser, has_text("#plan-phase", "Succeeded"))
    until(browser, "!document.querySelector('.leaves') && !document.querySelector('#abort')")


def test_a_plan_is_aborted_by_clicks_only_once_that_is_confirmed(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    sign_in(browser, url)
    click(browser, "[data-key=plan-waiting]")
    until(browser, has_text("#plan h3", "plan-waiting"))
    click(browser, "#abort")
    until(browser, has_text("#confirm-text", "cannot be undone"))
    click(browser, "#confirm-no")
    until(browser, "!document.querySelector('#confirm').open")
    assert not cluster.get(MIGRATION_PLANS, "plan-waiting")["spec"].get("aborted")
    click(browser, "#abort")
    click(browser, "#confirm-yes")
    until(browser, "!document.querySelector('#confirm').open")
    assert cluster.get(MIGRATION_PLANS, "plan-waiting")["spec"]["aborted"]


def test_the_openings_of_windows_are_listed_and_what_never_opens_is_named(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    cluster.add(RESERVATION_WINDOWS, window_body("nightly"))
    cluster.add(RESERVATION_WINDOWS, window_body("bad", timeZone="Europe/Nowhere"))
    sign_in(browser, url)
    until(browser, has_text("#calendar tbody", "batch/nightlyopens10"))
    until(browser, has_text("#calendar", "batch/bad never opens: "))


def test_what_doctor_finds_is_listed_by_kind_with_its_objects_and_what_to_do(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    cluster.start_operator()
    cluster.rights["admin"] |= {(right.verb, right.resource.plural) for right in rights_asked_for(())}
    sign_in(browser, url)
    until(browser, has_text("#findings", "There are no findings: "))
    for name in ("n8", "n9"):
        lent = node(name, labels={REVOCABLE_ZONE_LABEL: "gone"}, taints=[Taint(key=DRAINING_TAINT)])
        cluster.add(NODES, msgspec.to_builtins(lent))
    draining, unknown = (f"#findings .finding:nth-child({index})" for index in (1, 2))
    until(browser, has_text(f"{draining} li", "(may still pass by itself)"))
    until(browser, has_text(f"{unknown} li:last-child", "node n9: its label names 'gone'"))
    until(browser, has_text(unknown, "kubectl label node n8 "))
    assert not browser.evaluate(has_text(unknown, "may still pass"))
    assert browser.find_barriers() == []
    for name in ("n8", "n9"):
        cluster.remove(NODES, cluster.get(NODES, name))
    until(browser, has_text("#findings", "There are no findings: "))


def test_what_is_not_looked_for_in_want_of_rights_is_said(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    cluster.start_operator()
    sign_in(browser, url)
    until(browser, has_text("#findings", "There are no findings among what was looked for."))
    until(browser, has_text("#findings", "with the right to: get leases berth-descheduler, "))


def test_a_plan_that_changed_behind_the_dialog_is_not_approved(
    browser: Browser, url: str, cluster: ReviewingCluster
) -> None:
    sign_in(browser, url)
    click(browser, "[data-key=plan-waiting]")
    until(browser, has_text("#plan h3", "plan-waiting"))
    click(browser, "#approve")
    until(browser, has_text("#confirm-text", "2 pods will be moved"))
    cluster.merge_patch(MIGRATION_PLANS, "plan-waiting", {"spec": {"approveBefore": "2999-01-01T00:00:00Z"}})
    click(browser, "#confirm-yes")
    until(browser, "document.querySelector('#confirm-refused').textContent !== ''")
    assert not cluster.get(MIGRATION_PLANS, "plan-waiting")["spec"].get("approved")


def test_nodes_are_reached_by_keyboard_and_by_touch(browser: Browser, url: str) -> None:
    sign_in(browser, url)
    until(browser, "document.querySelectorAll('#nodes [data-node]').length === 3")
    stops = "[...document.querySelectorAll('#nodes [tabindex=\"0\"]')].map((cell) => cell.dataset.node).join()"
    assert browser.evaluate(stops) == "n0"
    browser.evaluate("document.querySelector('[data-node=n0]').focus()")
    for key, name in (("ArrowRight", "n1"), ("ArrowRight", "n2"), ("ArrowRight", "n2"), ("Home", "n0"), ("End", "n2")):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        assert browser.evaluate("document.activeElement.ariaLabel").startswith(f"{name}: 1 pod, cpu 25 %")
        assert browser.evaluate("document.querySelector('#node').textContent").startswith(f"{name}: 1 pod, cpu 25 %")
    click(browser, "[data-node=n1]")
    assert browser.evaluate("document.querySelector('#node').textContent").startswith("n1: ")
    assert browser.evaluate(stops) == "n1"


def test_a_connection_that_is_lost_is_said_and_comes_back(browser: Browser, cluster: ReviewingCluster) -> None:
    settings = replace(quick(), ui=True, port=free_port())
    with serving(cluster, settings) as url:
        sign_in(browser, url)
        click(browser, "[data-key=plan-of-twenty]")
        until(browser, has_text("#plan h3", "plan-of-twenty"))
    until(browser, has_text("#connection", "The connection is lost"))
    set_states(cluster, "plan-of-twenty", "Running", *["Landed"] * MOVES)
    with serving(cluster, settings):
        until(browser, has_text("#connection", "Live"))
        until(browser, has_text("#plan", f"{MOVES} of {MOVES} moves over"))


def test_a_part_that_its_reader_may_not_read_says_so_beside_the_others(browser: Browser, url: str) -> None:
    sign_in(browser, url, READER)
    until(browser, has_text("#nodes", "no right to list nodes"))
    until(browser, has_text("#policies", "no right to list deschedulerpolicies"))
    until(browser, "document.querySelector('[data-key=plan-done]')?.checkVisibility()")


def measured() -> CapacityHistory:
    """Return four measurements of cpu and memory, between which a plan of the cluster freed a node."""
    history, began = CapacityHistory(), datetime(2026, 11, 21, 11, 50, tzinfo=UTC)
    for minutes, cpu in enumerate(("3", "2", "2", "1")):
        nodes = tuple(node(f"n{index}", cpu="4", memory="16Gi") for index in range(3))
        pods = tuple(pod(f"web-{index}", node=f"n{index}", cpu=cpu, memory="5Gi") for index in range(3))
        history.keep(report_capacity(Snapshot(nodes=nodes, pods=pods)), began + timedelta(minutes=5 * minutes))
    return history


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "dark"), (DESK, "light")])
def test_fragmentation_is_drawn_over_time_and_stands_in_a_table(
    browser: Browser, cluster: ReviewingCluster, width: int, scheme: str
) -> None:
    freed = {"phase": "Succeeded", "completionTime": "2026-11-21T12:01:00Z", "achieved": {"freedNodes": ["n1"]}}
    cluster.merge_patch(MIGRATION_PLANS, "plan-done", {"status": freed}, subresource="status")
    settings = replace(quick(), ui=True, prometheus_url="https://metrics.example/berth")
    with serving(cluster, settings, history=measured()) as url:
        sign_in(browser, url, width=width, scheme=scheme)
        until(browser, "document.querySelector('#history .mark')")
        lines = "[...document.querySelectorAll('#history .chart polyline')].map((line) => line.points.length).join()"
        assert browser.evaluate(lines) == "4,4"
        assert "cpu" in browser.evaluate("document.querySelector('#history .chart').ariaLabel")
        assert browser.evaluate("document.querySelectorAll('#history tbody')[0].rows.length") == 4
        assert browser.evaluate("document.querySelector('#history a').href") == "https://metrics.example/berth"
        assert "plan-done" in browser.evaluate("document.querySelectorAll('#history tbody')[1].textContent")
        assert browser.evaluate(TOO_WIDE) <= 0
        assert browser.find_barriers() == []


def test_a_token_that_the_cluster_does_not_know_is_asked_for_again(browser: Browser, url: str) -> None:
    give_token(browser, url, "unknown")
    until(browser, has_text("#refused", "does not know this token"))
    assert browser.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (DESK, "dark")])
def test_the_page_can_be_used_by_everybody_on_a_phone_and_in_the_dark(
    browser: Browser, url: str, width: int, scheme: str
) -> None:
    browser.open(f"{url}/ui", width=width, scheme=scheme)
    until(browser, "document.querySelector('#sign-in').checkVisibility()")
    assert browser.find_barriers() == []
    sign_in(browser, url, width=width, scheme=scheme)
    until(browser, has_text("#plan h3", "plan-"))
    until(browser, "document.querySelector('#held p') && document.querySelector('#fragmentation table')")
    assert browser.evaluate(TOO_WIDE) <= 0
    assert browser.find_barriers() == []
    click(browser, "#approve")
    until(browser, "document.querySelector('#confirm').open")
    assert browser.find_barriers() == []
