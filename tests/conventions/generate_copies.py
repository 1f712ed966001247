"""Write the generated files: run `python tests/conventions/generate_copies.py` after a change.

These are the CRDs of the chart and of the Kustomize base, the chart's README, the reference pages of the two programs,
and the golden files of all that users and other programs see of Berth (`tests/golden`).
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

if __name__ == "__main__":  # as pytest has it
    _tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(_tests), str(_tests / "support")]
from conventions.reference_pages import DESCHEDULER_PAGE, OPERATOR_PAGE, reference_pages

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "berth"
KUSTOMIZE_BASE: Final = ROOT / "helm" / "kustomize" / "base"
_COMMAND: Final = "python tests/conventions/generate_copies.py"

_CHART_README: Final = """\
<!-- Generated from values.yaml by `{command}`. -->
# The chart of Berth

The chart installs the operator, the descheduler, their rights and the CRDs of Berth. One Berth serves the whole
cluster: do not install it twice. It needs Kubernetes 1.31 or newer; [your
cluster](../../shared/docs/kubernetes.md) says what else, and what was seen on which version.

The images are not published yet. Build them at the top of the repository, and push them where your nodes find them:

    docker build -f operator/Dockerfile -t registry.example/team/berth-operator:{version} .
    docker build -f descheduler/Dockerfile -t registry.example/team/berth-descheduler:{version} .

    helm install berth helm/berth --namespace berth-system --create-namespace --set image.prefix=registry.example/team

Everything that runs in the namespace passes the `restricted` Pod Security level, so enforce it:

    kubectl label namespace berth-system pod-security.kubernetes.io/enforce=restricted

`helm test berth --namespace berth-system --logs` runs `berth doctor` in a pod with rights to read and no others. It
fails where something is amiss, also where no operator acts.

The services run as user 65532 on a read-only root file system, with the rights of `files/*-rules.yaml` and no others.
ValidatingAdmissionPolicies (`files/admission-policies.yaml`) hold their accounts to the fields, names and shapes that
they need, and keep the labels that Berth's fences let in from others' pods. Network policies, on by default, let them
reach only the API server and the name service; set `networkPolicy.apiServerPorts` if your API servers listen on an
uncommon port.

OpenShift assigns uids of its own to the services if their values `podSecurityContext` leave them out:
`{{runAsUser: null, runAsGroup: null, fsGroup: null}}`. The pods that hold places run as user 65534, which its security
context constraint `nonroot-v2` allows: `oc adm policy add-scc-to-group nonroot-v2 system:serviceaccounts:berth-system`.

Where all nodes are control-plane nodes, as often with k3s and kind, set `operator.options.controlPlaneNodes` and
`descheduler.options.controlPlaneNodes`.

`examples` has values for [kind](examples/kind.yaml), [GKE](examples/gke-private.yaml),
[EKS](examples/eks-overlay-network.yaml), [AKS](examples/aks.yaml) and [OpenShift](examples/openshift.yaml), and the
[first policy](examples/first-policy.yaml): `helm install ... --values helm/berth/examples/kind.yaml`.

## Settings

`operator.options` and `descheduler.options` are the options of the two programs under their own names: `timeLimit` is
`--time-limit`, and a list gives an option several times. Options that make no sense for a service in a cluster are left
out. `values.schema.json` refuses unknown values and wrong types.

The descheduler does what DeschedulerPolicies say, and nothing without one. Apply them at any time; those under
`policies` come and go with the release:

    policies:
      nightly:
        trigger: {{cron: "0 2 * * *", timeZone: Europe/Berlin}}
        mode: Plan
        profiles:
          - name: consolidate
            pluginConfig:
              - {{name: Defragmentation, args: {{strategy: Consolidate}}}}
            plugins: {{balance: {{enabled: [Defragmentation]}}}}

[Policies](../../descheduler/docs/policies.md) says what each mode does and what to set.

## Certificates

The operator makes the certificate of its webhook, and needs nothing for it. An issuer of cert-manager can make it
instead, and that of the HTTP interface. Both are renewed without a restart:

    operator:
      webhook: {{tlsSecret: berth-webhook-issued, issuerRef: {{kind: ClusterIssuer, name: internal}}}}
    descheduler:
      rest: {{tlsSecret: berth-rest-issued, issuerRef: {{kind: ClusterIssuer, name: internal}}}}

The issuer has to give its authority in `ca.crt`, as those of the kinds CA, SelfSigned and Vault do. Without `issuerRef`
the Secrets are made otherwise.

## Roles

The chart makes ClusterRoles for people and their programs (`files/people-rules.yaml`); bind those that you need:

| ClusterRole | bound | what it gives |
|---|---|---|
| `berth-viewer` | in the cluster | read Berth's kinds and Leases, and list nodes and pods for `/v1/fragmentation` |
| `berth-editor` | in a namespace | write its Reservations and ReservationWindows |
| `berth-policy-editor` | in the cluster | the viewer's, and write DeschedulerPolicies of any mode |
| `berth-runner` | in the cluster | the viewer's, and ask for runs whose plans are shown or wait for an approval |
| `berth-approver` | in the cluster | the viewer's, and approve and abort plans; with the runner's also Auto runs |

Who has the cluster's own role `view` may read Berth's kinds, and `edit` or `admin` in a namespace gives what
`berth-editor` does there, unless `roles.aggregate` is false. Queues and RevocableZones are for administrators.

RBAC cannot tell an approval from another change of a plan. What is more than an approval or abort, or is given in
another's name, is refused to approvers by the admission policy `berth-plans-of-others`, as are to runners plans that
need no approval. Without `admissionPolicies` an approver can fill in the moves of a plan that was asked for.

## Upgrade

Helm does not update CRDs. Before `helm upgrade`, for a folder, an archive or an address of the chart:

    helm show crds helm/berth | kubectl apply --server-side --force-conflicts --filename -

No hook does it, since its account would need the right to change every CRD.

Operators are replaced one after the other, and held places stay held. Deschedulers are, too, and the next one continues
what the one before had begun.

In the repository `python tests/benchmarks/upgrade.py --before REVISION` goes from an older release to this one and
back, each time in the middle of a hundred hand-overs; in its last run all places went to their owners both ways.

## Uninstall

    berth uninstall
    berth uninstall --yes

The first command changes nothing and lists all that Berth has in the cluster: objects, webhooks and policies, the
labels, annotations, taints and scheduling gates on pods and nodes, placeholders and fences. The second removes it in
the order in which nothing is left, and can be called again after an interruption. It needs the rights of an
administrator, but neither helm nor programs that still run, so that it also clears up after `helm uninstall` alone.
That is safe: what is left then keeps no pod from being created, but pods that queues hold stay gated. `--keep-crds`
keeps the kinds. What people set stays (`berth.volcano.sh/evictions`), and so do tolerations, since Kubernetes does not
let them be taken off a pod. An object that a finalizer still holds after `--timeout` is freed of it.

By hand it goes like this.

The operator makes the certificate of its webhook, registers the webhook while a Reservation is live or there are
queues, and removes the registration when nothing needs it. Its priority classes for placeholders and fences stay. The
descheduler takes its marks off freed nodes when no policy wants them, and gives pods that surge moves let go back to
their ReplicaSets, which the loop below waits for. So end everything while both still run, queues
and windows before the Reservations that they make; `kubectl get berth --all-namespaces` lists what there is:

    kubectl delete queues.berth.volcano.sh,reservationwindows,revocablezones --all --all-namespaces
    kubectl wait --for=delete mutatingwebhookconfiguration/berth-queues --timeout=60s
    kubectl delete deschedulerpolicies --all
    kubectl delete migrationplans --all
    kubectl delete reservations --all --all-namespaces
    until [ -z "$(kubectl get pods --all-namespaces --selector pod-template-hash=released-by-berth --output name)" ]; do
      sleep 1
    done
    kubectl wait --for=delete mutatingwebhookconfiguration/berth-handover --timeout=60s
    helm uninstall berth --namespace berth-system
    kubectl delete namespace berth-system
    kubectl delete priorityclass --selector app.kubernetes.io/managed-by=berth-operator
    kubectl delete --filename helm/berth/crds/

Helm removes everything that it installed except the CRDs. The certificate's Secret and the Leases go with the
namespace. A webhook registration without an operator only causes delay: pods of the namespaces that had a live
Reservation are created five seconds later. `kubectl delete mutatingwebhookconfiguration berth-handover` ends that, and
`berth doctor` finds what else is left and says how to remove it. Pods that queues still held keep their gate, and no
scheduler looks at them; this takes it off all of them. The admission policy that guards the gate goes with the release
(`kubectl delete validatingadmissionpolicybinding berth-pods-of-others` where it is left):

    gate=berth.volcano.sh/queue
    kubectl delete mutatingwebhookconfiguration berth-queues || true
    kubectl get pods --all-namespaces --output go-template='{{{{range .items}}}}{{{{$pod := .metadata -}}}}
      {{{{range .spec.schedulingGates -}}}}
        {{{{$pod.namespace}}}} {{{{$pod.name}}}} {{{{.name}}}}{{{{"\\n"}}}}
      {{{{- end}}}}{{{{end}}}}' |
      while read -r namespace pod name; do
        [ "$name" = "$gate" ] || continue
        kubectl --namespace "$namespace" patch pod "$pod" \\
          -p "{{\\"spec\\": {{\\"schedulingGates\\": [{{\\"name\\": \\"$gate\\", \\"\\$patch\\": \\"delete\\"}}]}}}}"
      done

## Monitoring

`monitoring.rules` and `monitoring.dashboard` install `monitoring/alerts.yaml` and `monitoring/dashboard.json`. The
`runbook_url` of an alert leads to its heading on [the page of alerts](../../operator/docs/alerts.md). The reference
pages of the [descheduler](../../descheduler/docs/reference.md#metrics) and the
[operator](../../operator/docs/reference.md#metrics) explain the metrics.

## Values

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
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return _CHART_README.format(command=_COMMAND, version=chart["appVersion"], rows="\n".join(rows))


def base_crds(sources: Mapping[str, str]) -> str:
    """Return all CRD files, by their names, as one file of the Kustomize base."""
    documents = (f"---\n{source}" for _, source in sorted(sources.items()))
    return f"# Generated from crds by `{_COMMAND}`.\n{''.join(documents)}"


def copied_files() -> tuple[Path, ...]:
    """Return every generated file."""
    crds = (CHART / "crds" / path.name for path in sorted((ROOT / "crds").glob("*.yaml")))
    return (*crds, KUSTOMIZE_BASE / "crds.yaml", CHART / "README.md", DESCHEDULER_PAGE, OPERATOR_PAGE)


@cache
def copies() -> Mapping[Path, str]:
    """Return every generated file with what should stand in it."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "crds").glob("*.yaml")}
    crds = {CHART / "crds" / name: chart_crd(name, source) for name, source in sources.items()}
    crds[KUSTOMIZE_BASE / "crds.yaml"] = base_crds(sources)
    readme = chart_readme((CHART / "values.yaml").read_text(encoding="utf-8"))
    return {**crds, CHART / "README.md": readme, **reference_pages()}


def main() -> int:
    """Write every copy and golden file, and remove those whose source is gone."""
    from conventions.public_surface import GOLDEN, surface  # noqa: PLC0415 - it imports the programs

    wanted = {**copies(), **surface()}
    for path in (*(CHART / "crds").glob("*"), *GOLDEN.glob("*")):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
