"""`berth ui`: opens the page for people, of the service or, where none is installed, served here."""

import html
import re
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import webbrowser
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

import click

from berth_core import BerthError, SystemClock
from berth_descheduler.options import cluster_options, namespace_option
from berth_kube import SERVICES, ForbiddenError, KubeClient, NotFoundError, connect
from berth_service.command_line import OwnCommand, write_line, write_notice
from berth_service.extras import Extra, require
from berth_service.logs import configure_logs
from berth_service.signals import stop_on_signals

_FORWARDED: Final = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) ->")
_SUFFIX: Final = "-rest"
_CHART_LABEL: Final = "helm.sh/chart"
_CHART: Final = "berth-"
_ANSWER_SECONDS: Final = 10.0
_MEASURED_EVERY_SECONDS: Final = 60.0


class ForwardingError(BerthError):
    """kubectl forwards no port to the service."""


class NoPageError(BerthError):
    """The service is there, and serves no page."""


@click.command("ui", cls=OwnCommand)
@click.option("--local", is_flag=True, help="Serve the page here even if a service is installed.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@cluster_options
@namespace_option
def ui_command(*, local: bool, no_browser: bool, kubeconfig: str | None, context: str | None, namespace: str) -> int:
    """Open the page that shows the cluster, its plans and policies, and where plans are approved.

    It is the service's page, reached through `kubectl port-forward`, and asks for a token; a service without --rest-ui
    is an error. Without a Service for REST, the page is served on this machine, with the rights of the kubeconfig and a
    token for this run.
    """
    with connect(kubeconfig=kubeconfig, context=context, user_agent="berth-ui") as client, stop_on_signals() as stop:
        service = None if local else find_service(client, namespace)
        if service is not None:
            cluster = [
                f"--{name}={value}" for name, value in (("kubeconfig", kubeconfig), ("context", context)) if value
            ]
            with forwarding([*cluster, f"--namespace={namespace}"], service) as (port, process):
                refuse_without_page(service, port)
                address = f"https://localhost:{port}/ui"
                _show(address, opens=None if no_browser else address)
                while process.poll() is None and not stop.wait(0.2):
                    pass
            return 0 if stop.is_set() else 1
        require(Extra.DESCHEDULER, "`berth ui` without a service")
        configure_logs("warning", as_json=False)
        with serving(client, namespace) as address, redirecting(address) as file:
            _show(address, opens=None if no_browser else file.as_uri())
            stop.wait()
    return 0


def _show(address: str, *, opens: str | None) -> None:
    """Write an address, and have the browser open what leads there, unless that is None."""
    write_line(address)
    write_notice("Ctrl-C ends this")
    if opens is not None and not webbrowser.open(opens):
        write_notice("no browser could be opened: open the address yourself")


@contextmanager
def redirecting(address: str) -> Iterator[Path]:
    """Yield a file that leads a browser to an address, which only this user can read.

    Everybody on this machine sees with which arguments a browser was started, and the address has a token.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "berth.html"
        file.touch(mode=0o600)
        file.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">\n', encoding="utf-8")
        yield file


def find_service(client: KubeClient, namespace: str) -> str | None:
    """Return the name of the Service of REST that the chart made, None where there is none or none may be seen."""
    try:
        metadatas = [service["metadata"] for service in client.list(SERVICES, namespace=namespace).items]
    except (ForbiddenError, NotFoundError):
        return None
    ours = (meta["name"] for meta in metadatas if meta.get("labels", {}).get(_CHART_LABEL, "").startswith(_CHART))
    return next((name for name in sorted(ours) if name.endswith(_SUFFIX)), None)


@contextmanager
def forwarding(cluster: list[str], service: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Yield the port of this machine that kubectl forwards to a Service, and kubectl; raises `ForwardingError`."""
    program = shutil.which("kubectl")
    if program is None:
        raise ForwardingError("kubectl, which forwards a port to the service, is not on the PATH; --local needs none")
    command = [program, "port-forward", *cluster, "--address=127.0.0.1", f"service/{service}", ":443"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - the user's kubectl
        try:
            port = _read_port(process)
            # kubectl writes a line for each connection, and hangs once its pipe is full.
            threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()
            yield port, process
        finally:
            process.terminate()


def refuse_without_page(service: str, port: int) -> None:
    """Raise `NoPageError` where a forwarded service knows no page.

    It is asked without a token, so its certificate does not matter. If it does not answer, the browser says so.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/ui")
        status = connection.getresponse().status
    except (OSError, HTTPException):
        return
    finally:
        connection.close()
    if status == HTTPStatus.NOT_FOUND:
        raise NoPageError(
            f"service/{service} serves no page: set descheduler.rest.ui=true in the chart's values (--rest-ui), "
            "or serve it on this machine with --local"
        )


def _read_port(process: "subprocess.Popen[str]") -> int:
    for line in process.stdout or ():
        if match := _FORWARDED.match(line):
            return int(match[1])
    raise ForwardingError(f"kubectl port-forward ended with exit code {process.wait()}; --local needs no service")


@contextmanager
def serving(client: KubeClient, namespace: str) -> Iterator[str]:
    """Serve the page on loopback with the rights of a client; yield its address, which has the token of this run."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - of an extra, as all below

    from berth_descheduler.api.capacity_history import CapacityHistory  # noqa: PLC0415
    from berth_descheduler.api.server import RestServer  # noqa: PLC0415
    from berth_descheduler.api.settings import RestSettings  # noqa: PLC0415
    from berth_descheduler.capacity_meter import CapacityMeter, CapacitySettings  # noqa: PLC0415
    from berth_descheduler.metrics import CapacityMetrics  # noqa: PLC0415
    from berth_descheduler.picture import Picture  # noqa: PLC0415

    token, registry, history = secrets.token_urlsafe(32), CollectorRegistry(), CapacityHistory()
    settings = RestSettings(namespace=namespace, ui=True, local_token=token)
    meter = CapacityMeter(
        Picture(client, namespace),
        SystemClock(),
        CapacityMetrics(registry),
        CapacitySettings(every_seconds=_MEASURED_EVERY_SECONDS),
        history.keep,
    )
    with RestServer(client, settings, registry, history=history) as server, meter:
        # A fragment is not sent: the token is in no request but those of the page.
        yield f"{server.url}/ui#token={token}"
