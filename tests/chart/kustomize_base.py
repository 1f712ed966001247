"""Write the Kustomize base: run `python tests/chart/kustomize_base.py` after a change of the chart.

It is what helm makes of the chart by default. helm is the one on the PATH, or is built; so this is apart from
`tests/conventions/generate_copies.py`, which needs nothing and writes the base's CRDs.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

if __name__ == "__main__":  # as pytest has it
    _tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(_tests), str(_tests / "support")]
from berth_core.names import DEFAULT_NAMESPACE
from berth_sandbox.binaries import find_helm
from chart.charted import Helm, Manifest, is_hook
from conventions.generate_copies import KUSTOMIZE_BASE

RENDERED: Final = KUSTOMIZE_BASE / "berth.yaml"
_HEAD: Final = "# Generated from helm/berth by `python tests/chart/kustomize_base.py`.\n"
_LABELS_OF_HELM: Final = ("app.kubernetes.io/managed-by", "helm.sh/chart")
"""Nothing but helm manages what has them."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def objects_of_base(helm: Helm) -> list[Manifest]:
    """Return what the chart makes by default, without hooks and without labels that say helm's release."""
    manifests = [manifest for manifest in helm.render({}, namespace=DEFAULT_NAMESPACE) if not is_hook(manifest)]
    for manifest in manifests:
        labels: dict[str, Any] = manifest["metadata"]["labels"]
        for key in _LABELS_OF_HELM:
            del labels[key]
    return manifests


def base_text(helm: Helm) -> str:
    """Return the file of the base with all objects but the namespace and the CRDs."""
    documents = yaml.dump_all(objects_of_base(helm), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return _HEAD + documents


def main() -> int:
    """Write the file."""
    with tempfile.TemporaryDirectory() as home:
        RENDERED.write_text(base_text(Helm(find_helm(print), Path(home))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
