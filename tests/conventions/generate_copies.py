"""Owns the generated copies in the chart: run `python tests/conventions/generate_copies.py` after a change.

It does not own their sources: `crds/` and the chart's `values.yaml`.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "berth"
_COMMAND: Final = "python tests/conventions/generate_copies.py"

_CHART_README: Final = """\
<!-- Generated from values.yaml by `{command}`. -->
# The chart of Berth

Installs the operator, the descheduler, their rights and the CRDs of Berth into one namespace. One Berth serves the
whole cluster: do not install it twice.

    helm install berth helm/berth --namespace berth-system --create-namespace --set image.repository=<your image>

Helm does not update CRDs: before `helm upgrade`, run `kubectl apply --server-side -f crds/`.

Everything that runs in the namespace passes the `restricted` Pod Security level, so hold it to that:

    kubectl label namespace berth-system pod-security.kubernetes.io/enforce=restricted

The operator makes and renews the certificate of its webhook itself, and registers the webhook only while a Reservation
is live; `helm uninstall` leaves no webhook behind if no Reservation is live then.

| Value | Default | Meaning |
|---|---|---|
{rows}
"""


def chart_crd(name: str, source: str) -> str:
    """Return the chart's copy of one CRD file."""
    return f"# Generated from crds/{name} by `{_COMMAND}`.\n{source}"


def _descriptions(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the description of every value that has one (`# --` above it)."""
    parents: list[tuple[int, str]] = []
    remark: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#"):
            remark.append(text.removeprefix("# --").removeprefix("#").strip())
        elif text:
            indent = len(line) - len(line.lstrip())
            parents = [(depth, key) for depth, key in parents if depth < indent]
            parents.append((indent, text.split(":", 1)[0]))
            if remark:
                yield ".".join(key for _, key in parents), " ".join(remark)
            remark = []


def _value(values: Mapping[str, Any], dotted: str) -> Any:  # noqa: ANN401 - a chart's value is anything
    found: Any = values
    for key in dotted.split("."):
        found = found[key]
    return found


def chart_readme(values_text: str) -> str:
    """Return the chart's README, made from the remarks in its values."""
    values = yaml.safe_load(values_text)
    rows = [
        f"| `{key}` | `{json.dumps(_value(values, key))}` | {description} |"
        for key, description in _descriptions(values_text.splitlines())
    ]
    return _CHART_README.format(command=_COMMAND, rows="\n".join(rows))


def copies() -> dict[Path, str]:
    """Return every generated file with what should stand in it."""
    crds = {
        CHART / "crds" / path.name: chart_crd(path.name, path.read_text()) for path in (ROOT / "crds").glob("*.yaml")
    }
    return {**crds, CHART / "README.md": chart_readme((CHART / "values.yaml").read_text())}


def main() -> int:
    """Write every copy and remove CRDs whose source is gone."""
    wanted = copies()
    for path in (CHART / "crds").glob("*"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
