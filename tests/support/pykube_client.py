"""A Kubernetes client that shares no code with Berth: what another program sees of a Reservation, through pykube."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pykube
import yaml
from pykube.objects import NamespacedAPIObject


class Reservation(NamespacedAPIObject):
    """A Reservation, read by its published field names only."""

    version = "batch.volcano.sh/v1alpha1"
    endpoint = "reservations"
    kind = "Reservation"

    @classmethod
    def build(cls, api: pykube.HTTPClient, name: str, spec: Mapping[str, Any]) -> "Reservation":
        body = {"apiVersion": cls.version, "kind": cls.kind, "metadata": {"name": name}, "spec": dict(spec)}
        return cls(api, body)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.obj.get("status", {})
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("state", {}).get("phase", ""))

    @property
    def conditions(self) -> dict[str, str]:
        """The status of each condition, by type."""
        return {found["type"]: found["status"] for found in self.status.get("conditions", [])}

    def has_reached(self, phase: str) -> bool:
        """Read the Reservation again and return whether it is in the phase."""
        self.reload()
        return self.phase == phase

    def printed(self) -> dict[str, Any]:
        """Return the columns that the API server prints, without the age."""
        own = Reservation.objects(self.api, namespace=self.namespace)
        table = own.filter(field_selector={"metadata.name": self.name}).as_table()
        (row,) = table.rows
        cells = zip(table.columns, row["cells"], strict=True)
        return {column["name"]: cell for column, cell in cells if column["name"] != "Age"}


def connect(kubeconfig: Path) -> pykube.HTTPClient:
    """Return a client of the kubeconfig's cluster, whose session the caller closes."""
    client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(kubeconfig)), timeout=120)
    # The environment's proxies and REQUESTS_CA_BUNDLE must not override the kubeconfig.
    client.session.trust_env = False
    return client


def write_kubeconfig(path: Path, kubeconfig: Path, *, namespace: str) -> Path:
    """Write a copy of a kubeconfig whose contexts are in the namespace."""
    body = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for entry in body["contexts"]:
        entry["context"]["namespace"] = namespace
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return path
