"""Long lists over HTTP go on where an answer ended."""

from collections.abc import Iterator

import pytest

from berth_kube.resources import MIGRATION_PLANS
from descheduler.rest_server import ReviewingCluster, add_plan, ask, populated, serving


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster) as url:
        yield url


def test_a_list_of_plans_goes_on_where_it_ended_whatever_comes_and_goes(url: str, cluster: ReviewingCluster) -> None:
    def add(index: int) -> None:
        made = f"2026-11-20T{index:02}:00:00Z"
        plan = add_plan(cluster, f"plan-{index}", phase="Failed")
        cluster.add(MIGRATION_PLANS, {**plan, "metadata": {**plan["metadata"], "creationTimestamp": made}})

    for index in range(5):
        add(index)
    first = ask("GET", f"{url}/v1/plans?phase=Failed&limit=2").json()
    add(9)
    cluster.delete(MIGRATION_PLANS, "plan-3")
    second = ask("GET", f"{url}/v1/plans", params={"phase": "Failed", "limit": 2, "continue": first["continue"]}).json()
    last = ask("GET", f"{url}/v1/plans", params={"phase": "Failed", "continue": second["continue"]}).json()

    assert [[one["name"] for one in page["items"]] for page in (first, second, last)] == [
        ["plan-4", "plan-3"],
        ["plan-2", "plan-1"],
        ["plan-0"],
    ]
    assert [page["remaining"] for page in (first, second, last)] == [3, 1, 0]
    assert last["continue"] == ""


@pytest.mark.parametrize("given", ["plan-1", "%20", "/", "2026-11-20T04:00:00Z/a/b"])
def test_what_no_list_ended_with_is_refused(url: str, given: str) -> None:
    answer = ask("GET", f"{url}/v1/plans?continue={given}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "query.continue"
