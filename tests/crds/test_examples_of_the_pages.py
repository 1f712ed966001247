"""Every object that a page, an example beside it or the chart's metadata shows is admitted as it stands."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from conventions.generate_copies import CHART
from conventions.pages import blocks
from conventions.tracked import ROOT
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

BERTH: Final = "apis/berth.volcano.sh/v1alpha1"
COLLECTIONS: Final = {
    "DeschedulerPolicy": f"{BERTH}/deschedulerpolicies",
    "MigrationPlan": f"{BERTH}/migrationplans",
    "Queue": f"{BERTH}/queues",
    "RevocableZone": f"{BERTH}/revocablezones",
    "ReservationWindow": f"{BERTH}/namespaces/default/reservationwindows",
    "Reservation": "apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations",
    "ConfigMap": "api/v1/namespaces/default/configmaps",
    "Deployment": "apis/apps/v1/namespaces/default/deployments",
    "Ingress": "apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "Namespace": "api/v1/namespaces",
}


def shown() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where an object is shown, and the object."""
    for folder in ("descheduler", "operator"):
        for path in sorted((ROOT / folder / "docs").glob("*.yaml")):
            yield from ((path.name, one) for one in yaml.safe_load_all(path.read_text(encoding="utf-8")))
    for text in blocks("yaml"):
        yield from (("a page", one) for one in yaml.safe_load_all(text) if "apiVersion" in one)
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["annotations"]
    yield from (("Chart.yaml", one) for one in yaml.safe_load(metadata["artifacthub.io/crdsExamples"]))


def test_all_that_is_shown_is_admitted_without_a_field_that_is_unknown(api: PlainApi) -> None:
    objects = list(shown())
    assert {body["kind"] for _, body in objects} >= {"Queue", "RevocableZone", "Reservation", "ReservationWindow"}
    for where, body in objects:
        collection = COLLECTIONS[body["kind"]]
        metadata = dict(body["metadata"])
        if "/namespaces/" in collection:
            metadata["namespace"] = "default"
        answer = api.create(collection, {**body, "metadata": metadata}, dry_run=True, strict=True)
        assert not answer.refused, (where, body["kind"], metadata["name"], answer.message)
