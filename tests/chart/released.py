"""A release of the chart on a sandbox: installed by helm, its services run as its Deployments say."""

import re
import subprocess
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.errors import Call
from berth_kube.resources import CRDS, DEPLOYMENTS, NAMESPACES, PODS, SECRETS
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.bootstrap import request_token
from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from chart.charted import APPLY, RELEASE, SERVICES, Helm, Values, container
from cluster_objects import is_gone
from cluster_reports import note_operator
from conventions.generate_copies import CHART
from service_processes import script
from waiting import eventually

POD_NAME: Final = "berth-pod-0"
CONSOLIDATE: Final = {
    "trigger": {"interval": "1h"},
    "mode": "Auto",
    "profiles": [
        {
            "name": "full",
            "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "Consolidate"}}],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}},
        },
    ],
}
ISSUED_SECRET: Final = "issued-tls"


@dataclass(frozen=True)
class Release:
    """Berth as helm installed it."""

    helm: Helm
    sandbox: Sandbox

    def install(self, values: Values, chart: Path = CHART) -> None:
        self._run("install", RELEASE, str(chart), "--create-namespace", values=values)

    def upgrade(self, values: Values, chart: Path = CHART) -> None:
        self._run("upgrade", RELEASE, str(chart), "--reset-values", values=values)

    def apply_kinds(self, client: KubeClient, chart: Path = CHART) -> dict[str, Any]:
        """Apply a chart's CRDs as its page says, and return them by name."""
        bodies = {
            body["metadata"]["name"]: body for body in yaml.safe_load_all(self.helm.run("show", "crds", str(chart)))
        }
        for name, body in bodies.items():
            call = Call("apply", f"the CRD {name}")
            options = (("fieldManager", "kubectl"), ("force", "true"))
            request = Request(call, "PATCH", CRDS.path(name), options, msgspec.json.encode(body), APPLY)
            client.send(request, Repeatable.UNLESS_ACTED)
        return bodies

    def uninstall(self) -> None:
        self._run("uninstall", RELEASE, "--wait")

    def ask_tests(self) -> str:
        """Run `helm test`, which fails unless its pod succeeds."""
        return self._run("test", RELEASE, "--timeout", "180s")

    def exists(self) -> bool:
        return RELEASE in self._run("list", "--short")

    def _run(self, *arguments: str, values: Values | None = None) -> str:
        cluster = ("--kubeconfig", str(self.sandbox.kubeconfig), "--namespace", DEFAULT_NAMESPACE)
        return self.helm.run(*arguments, *cluster, values=values)


@contextmanager
def installed(helm: Helm, sandbox: Sandbox, client: KubeClient, values: Values) -> Iterator[Release]:
    """Yield a release; at the end nothing of it is left but the CRDs."""
    eventually("the namespace is gone", lambda: is_gone(client, NAMESPACES, DEFAULT_NAMESPACE), seconds=180)
    release = Release(helm, sandbox)
    release.install(values)
    try:
        yield release
    finally:
        if release.exists():
            release.uninstall()
        if not is_gone(client, NAMESPACES, DEFAULT_NAMESPACE):
            client.delete(NAMESPACES, DEFAULT_NAMESPACE)


def command_of(deployment: dict[str, Any], kubeconfig: Path, mounted: dict[str, Path]) -> list[str]:
    """Return the command of a Deployment's container with its variables; what a pod has besides is its account.

    Instead of the paths where a kubelet mounts Secrets it has those where they are.
    """
    main = container([deployment], deployment["metadata"]["name"].removeprefix("berth-"))
    given = [f"{entry['name']}={_value(entry)}" for entry in main.get("env", [])]
    program, *arguments = (str(part) for part in (*main["command"], *main["args"]))
    for path, folder in mounted.items():
        arguments = [re.sub(rf"={path}(?=/|$)", f"={folder}", argument) for argument in arguments]
    return ["env", *given, f"KUBECONFIG={kubeconfig}", script(program), *arguments]


def mount_secrets(client: KubeClient, deployment: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Write the Secrets that a Deployment mounts to files, and return the folder of each by its path in the pod."""
    spec = deployment["spec"]["template"]["spec"]
    names = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    mounts = spec["containers"][0]["volumeMounts"]
    found = {mount["mountPath"]: folder / mount["name"] for mount in mounts if mount["name"] in names}
    for mount in mounts:
        if mount["name"] in names:
            secret = client.get(SECRETS, names[mount["name"]], namespace=DEFAULT_NAMESPACE)
            found[mount["mountPath"]].mkdir()
            for name, text in secret["data"].items():
                (found[mount["mountPath"]] / name).write_bytes(b64decode(text))
    return found


def _value(entry: dict[str, Any]) -> str:
    """Return the value of a variable as a kubelet finds it."""
    if "valueFrom" not in entry:
        return str(entry["value"])
    assert entry["valueFrom"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    return POD_NAME


@contextmanager
def running_services(sandbox: Sandbox, client: KubeClient, folder: Path) -> Iterator[dict[str, ServiceProcess]]:
    """Yield both services, started as the Deployments say and under the accounts that these name."""
    found: dict[str, ServiceProcess] = {}
    with ExitStack() as stack:
        for service in SERVICES:
            deployment = client.get(DEPLOYMENTS, f"berth-{service}", namespace=DEFAULT_NAMESPACE)
            account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
            kubeconfig = sandbox.service_account_kubeconfig(account)
            command = command_of(deployment, kubeconfig, mount_secrets(client, deployment, folder))
            process = ServiceProcess(command, folder / f"berth-{service}.log")
            note_operator(process, sandbox)
            found[service] = stack.enter_context(process)
            wait_for_probes(deployment, process)
        yield found


def wait_for_probes(deployment: dict[str, Any], process: ServiceProcess) -> None:
    """Wait until both probes of a Deployment are answered as a kubelet wants it."""
    main = container([deployment], deployment["metadata"]["name"].removeprefix("berth-"))
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    for probe in (main["livenessProbe"]["httpGet"], main["readinessProbe"]["httpGet"]):
        eventually(
            f"{probe['path']} is answered",
            partial(_answers, ports[probe["port"]], probe["path"], process),
            seconds=90,
        )


def _answers(port: int, path: str, process: ServiceProcess) -> bool:
    process.require_running()
    try:
        return bool(read_page(port, path))
    except OSError:
        return False


def read_page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def play_the_test_pod(release: Release, client: KubeClient, folder: Path) -> tuple[str, str]:
    """Run `helm test`, and what its pod would run with its account; return what helm and the pod said."""
    name = f"{RELEASE}-test"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(release.ask_tests)
        made = lambda: asked.done() or not is_gone(client, PODS, name, DEFAULT_NAMESPACE)  # noqa: E731
        eventually("helm makes its test pod", made, seconds=120)
        assert not asked.done(), asked.result()
        pod = client.get(PODS, name, namespace=DEFAULT_NAMESPACE)
        kubeconfig = yaml.safe_load(release.sandbox.service_account_kubeconfig("berth-descheduler").read_text())
        kubeconfig["users"][0]["user"] = {"token": request_token(client, pod["spec"]["serviceAccountName"])}
        (folder / "test-pod").write_text(yaml.safe_dump(kubeconfig))
        (main,) = pod["spec"]["containers"]
        program, *arguments = (*main["command"], *main["args"])
        done = subprocess.run(
            [script(program), *arguments, f"--kubeconfig={folder / 'test-pod'}"],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        phase = {"status": {"phase": "Failed" if done.returncode else "Succeeded"}}
        client.merge_patch(PODS, name, phase, namespace=DEFAULT_NAMESPACE, subresource="status")
        return asked.result(), done.stdout + done.stderr


def local_values() -> dict[str, Any]:
    """Return the values with which the API server reaches this machine, and a cluster is emptied."""
    webhook, operator, descheduler, rest = (free_port() for _ in range(4))
    url = {"webhookPort": webhook, "webhookUrl": f"https://127.0.0.1:{webhook}"}
    kept_away = {"nodeSelector": {"pool": "system"}}
    limits = {"limit": "slots=none,share=none", "drainSeconds": 0.2, "leaseSeconds": 3}
    return {
        "operator": {
            "healthPort": operator,
            "options": {**url, **limits},
            "webhook": {"tlsSecret": ISSUED_SECRET},
            **kept_away,
        },
        "descheduler": {
            "healthPort": descheduler,
            "options": {"timeLimit": 5},
            "rest": {"tlsSecret": ISSUED_SECRET, "port": rest},
            **kept_away,
        },
        "policies": {"consolidate": {**CONSOLIDATE}},
    }


def make_certificate(sandbox: Sandbox, client: KubeClient) -> None:
    """Create the Secret of both servers: the certificate that the API server has, which is for this machine."""
    folder = sandbox.folder / "pki"
    names = {"tls.crt": "kube-apiserver.crt", "tls.key": "kube-apiserver.key", "ca.crt": "ca.crt"}
    files = {name: folder / file for name, file in names.items()}
    body = {
        "metadata": {"name": ISSUED_SECRET},
        "type": "kubernetes.io/tls",
        "data": {name: b64encode(file.read_bytes()).decode() for name, file in files.items()},
    }
    client.create(SECRETS, body, namespace=DEFAULT_NAMESPACE)
