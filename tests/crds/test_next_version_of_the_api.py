"""The way to the next version of the API that a page writes down, gone with the schema of Reservations."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest
import yaml

from conventions.tracked import ROOT
from plain_api import PlainApi
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

GROUP: Final = "next.berth.example"
CRDS: Final = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: Final = f"{CRDS}/reservations.{GROUP}"
OLD, NEW = "v1alpha1", "v1beta1"
STATUS: Final = {"state": {"phase": "Available", "message": "1 of 1 slot is held"}}


def read_crd() -> dict[str, Any]:
    """Return the CRD of Reservations for the group of this test."""
    crd: dict[str, Any] = yaml.safe_load((ROOT / "crds" / "reservations.yaml").read_text(encoding="utf-8"))
    names = {key: value for key, value in crd["spec"]["names"].items() if key not in {"shortNames", "categories"}}
    crd["metadata"] = {"name": f"reservations.{GROUP}"}
    crd["spec"] = {**crd["spec"], "group": GROUP, "names": names}
    return crd


def versions(mark: str, stored: str, *served: str) -> dict[str, Any]:
    """Return a patch by which versions with the schema of today are served, with a mark in their tables."""
    (today,) = read_crd()["spec"]["versions"]
    columns = [{"name": mark, "type": "string", "jsonPath": ".metadata.uid"}]
    changed = {**today, "additionalPrinterColumns": columns}
    return {"spec": {"versions": [{**changed, "name": name, "storage": name == stored} for name in served]}}


def of(version: str, name: str = "") -> str:
    return f"apis/{GROUP}/{version}/namespaces/default/reservations" + (f"/{name}" if name else "")


@pytest.fixture
def group(api: PlainApi) -> Iterator[PlainApi]:
    answer = api.create(CRDS, read_crd())
    assert not answer.refused, answer.message
    try:
        eventually("the kind is served", lambda: not api.get(of(OLD)).refused)
        yield api
    finally:
        api.delete(CRD)
        eventually("the kind is gone", lambda: is_gone_or_touched(api), pause_seconds=0.5)


def is_gone_or_touched(api: PlainApi) -> bool:
    """Return whether the CRD is gone; a deletion while its storage is made is seen only once it is written again."""
    return api.merge_patch(CRD, {"metadata": {"annotations": {"touched": uuid4().hex}}}).code == 404


def step(api: PlainApi, stored: str, *served: str) -> None:
    """Change which versions there are, and wait until the API server goes by it.

    It stores by the new version from the moment at which its tables have the new column.
    """
    mark = f"Step {uuid4().hex[:8]}"
    answer = api.merge_patch(CRD, versions(mark, stored, *served))
    assert not answer.refused, answer.message

    def is_taken_up() -> bool:
        shown = {version: api.table(of(version)) for version in (OLD, NEW)}
        marked = {
            version
            for version, found in shown.items()
            if not found.refused and mark in {column["name"] for column in found.body["columnDefinitions"]}
        }
        return marked == set(served) == {version for version, found in shown.items() if not found.refused}

    eventually(f"{served} are served and {stored} is stored", is_taken_up)


def write_again(api: PlainApi, version: str) -> None:
    """Write each object again without a change, and say that only this version is stored."""
    for item in api.get(of(version)).body["items"]:
        assert not api.merge_patch(of(version, item["metadata"]["name"]), {}).refused
    answer = api.merge_patch(f"{CRD}/status", {"status": {"storedVersions": [version]}})
    assert not answer.refused, answer.message


def test_objects_go_to_the_next_version_and_back_as_they_are(group: PlainApi) -> None:
    example = yaml.safe_load((ROOT / "operator" / "docs" / "waiting.yaml").read_text(encoding="utf-8"))
    body = {"kind": "Reservation", "spec": example["spec"]}
    written: dict[str, dict[str, Any]] = {}

    def make(version: str, name: str) -> None:
        made = group.create(of(version), {**body, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": name}})
        assert not made.refused, made.message
        assert not group.merge_patch(f"{of(version, name)}/status", {"status": STATUS}).refused
        written[name] = made.body["spec"]

    def reads_the_same_in(*served: str) -> None:
        for version in served:
            for name, spec in written.items():
                found = group.get(of(version, name)).body
                assert (found["apiVersion"], found["spec"]) == (f"{GROUP}/{version}", spec)
                assert found["status"]["state"] == STATUS["state"]

    make(OLD, "first")
    step(group, OLD, OLD, NEW)  # release N
    make(NEW, "made-early")
    reads_the_same_in(OLD, NEW)
    step(group, NEW, OLD, NEW)  # release N+1
    make(OLD, "made-late")
    reads_the_same_in(OLD, NEW)
    step(group, OLD, OLD, NEW)  # back to release N
    reads_the_same_in(OLD, NEW)
    step(group, NEW, OLD, NEW)
    assert set(group.get(CRD).body["status"]["storedVersions"]) == {OLD, NEW}
    write_again(group, NEW)
    step(group, NEW, NEW)  # release N+3
    reads_the_same_in(NEW)
    step(group, NEW, NEW, OLD)  # and back
    reads_the_same_in(OLD, NEW)
