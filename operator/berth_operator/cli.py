"""The command line of `berth-operator`: options, environment variables, exit codes."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import click
import kopf

from berth_core import (
    DEFAULT_NAMESPACE,
    BerthError,
    DurationError,
    InputError,
    SystemClock,
    parse_duration,
    printable_line,
)
from berth_kube import ClientSettings, ConfigurationSource, KubeClient, RetryPolicy, connect, find_source
from berth_operator.quota.limits import LimitSettings, parse_limit, parse_namespace_limits, parse_namespace_tolerations
from berth_operator.runtime.app import App
from berth_operator.runtime.capability import Capability
from berth_operator.runtime.kopf_handlers import declare_process, declare_reservations
from berth_operator.runtime.kopf_runtime import ReservationStream, run_kopf
from berth_operator.runtime.kopf_session import Connection
from berth_operator.runtime.registry import CAPABILITIES
from berth_operator.runtime.silence import Silence
from berth_operator.settings import (
    LONGEST_WEBHOOK_SECONDS,
    HandoverSettings,
    OperatorSettings,
    PlaceholderSettings,
    WebhookSettings,
)
from berth_service.command_line import OwnCommand
from berth_service.logs import configure_logs
from berth_service.memory import collect_garbage_rarely, share_one_heap
from berth_service.process import allow_many_files, parse_address, unique_identity

_REQUEST_SECONDS: Final = 10.0
_SWITCH_SECONDS: Final = 0.0005
"""How long a computing thread keeps the interpreter lock while others wait for it. A thread that does I/O gives it up
at each call and has to wait for it again (python/cpython#90204), and to answer one review the webhook's thread
waits some ten times: with Python's default of 5 ms that took three times as long beside a few busy workers."""
_RETRIES: Final = RetryPolicy(attempts=3, deadline_seconds=2.0)
"""Short, so that no call outlives the Lease under which it was made; a failed key is reconciled again anyway."""


@click.command(
    "berth-operator",
    cls=OwnCommand,
    context_settings={
        "auto_envvar_prefix": "BERTH_OPERATOR",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    },
)
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig file; default: KUBECONFIG, the pod's, ~/.kube.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig; default: its current one.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, help="Berth's own namespace: placeholders, Secret, Lease.")
@click.option("--image", default=PlaceholderSettings.image, help="Image of the placeholders.")
@click.option("--identity", metavar="NAME", help="Name of this replica in the Lease; default: a unique one.")
@click.option(
    "--webhook-service",
    default="",
    show_default=False,
    metavar="NAME",
    help="Service in front of the webhook; needed in a cluster.",
)
@click.option(
    "--webhook-url",
    default="",
    show_default=False,
    metavar="URL",
    help="Base address (https://HOST:PORT) instead of a Service; default: where it listens.",
)
@click.option(
    "--webhook-host", default="127.0.0.1", help="Address that the webhook listens on; :: for all, IPv4 and IPv6."
)
@click.option("--webhook-port", default=9443, type=click.IntRange(0, 65535), help="Its port; 0 takes a free one.")
@click.option(
    "--webhook-timeout-seconds",
    default=5,
    type=click.IntRange(1, LONGEST_WEBHOOK_SECONDS),
    help="How long the API server waits for the webhook before it creates a pod without it.",
)
@click.option(
    "--certificate-life", default="8760h", metavar="DURATION", help="How long a certificate of the webhook lasts."
)
@click.option(
    "--certificate-folder",
    default="",
    show_default=False,
    metavar="FOLDER",
    help="Where tls.crt, tls.key and ca.crt of an issuer are mounted, instead of own certificates.",
)
@click.option("--drain-seconds", default=5.0, help="How long the webhook keeps answering after a request to stop.")
@click.option("--health-address", default="127.0.0.1:8080", help="HOST:PORT of /healthz, /readyz and /metrics.")
@click.option(
    "--retention", "retention_seconds", default=3600.0, help="Seconds that finished Reservations stay; 0: for ever."
)
@click.option(
    "--unschedulable-seconds",
    default=600.0,
    help="How long the scheduler may find no place before a Reservation fails; 0: until it expires.",
)
@click.option(
    "--node-lost-seconds",
    default=300.0,
    help="How long a node may not be ready before its places are lost (NodeLost) or held elsewhere; 0: never.",
)
@click.option(
    "--handovers-at-once", default=50, help="How many slots change hands at the same time; the others stay held."
)
@click.option(
    "--limit",
    default="slots=1000,share=50%",
    metavar="PARTS",
    help="What the live Reservations of one namespace may hold: slots, share of the cluster, amounts like cpu=64, "
    "maxFencedNodes=10% (default: 10% or 5 nodes); how many of its windows open, windows=20, and how many Reservations "
    "these begin in a minute, begunPerMinute=30.",
)
@click.option(
    "--namespace-limit",
    "namespace_limits",
    multiple=True,
    metavar="NAMESPACE:PARTS",
    help="The same for one namespace, instead of --limit; may be given several times.",
)
@click.option(
    "--cluster-limit",
    default="slots=none,share=80%",
    metavar="PARTS",
    help="What the live Reservations of all namespaces may hold together.",
)
@click.option(
    "--highest-priority",
    default=LimitSettings().highest_priority,
    help="PriorityClasses of a higher value need a ResourceQuota scoped to them.",
)
@click.option("--control-plane-nodes", is_flag=True, help="Hold places on control-plane nodes, too.")
@click.option(
    "--no-dry-runs",
    is_flag=True,
    help="Do not ask the admission of a Reservation's namespace; use --namespace-tolerations instead.",
)
@click.option(
    "--namespace-tolerations",
    multiple=True,
    metavar="NAMESPACE:KEYS",
    help="Taints that templates of a namespace (or *) may tolerate without dry runs; may be given several times.",
)
@click.option(
    "--guarded-priority-classes",
    default=",".join(sorted(LimitSettings().guarded_classes)),
    metavar="NAMES",
    help="PriorityClasses for which a namespace needs a ResourceQuota scoped to them, as for pods.",
)
@click.option("--lease-seconds", default=6, help="How long the Lease holds without renewal.")
@click.option(
    "--sweep-seconds", default=15.0, help="Seconds between two passes that compare everything with the API server."
)
@click.option("--workers", default=16, help="Threads that reconcile.")
@click.option(
    "--log-level",
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Log from this level up.",
)
def main(**options: Any) -> None:  # noqa: ANN401 - click's options, read once below
    """Hold, hand over, expire and collect Reservations."""
    try:
        settings = read_settings(options)
        source = find_source(options["kubeconfig"], options["context"])
        client = connect(
            kubeconfig=options["kubeconfig"],
            context=options["context"],
            user_agent="berth-operator",
            request_timeout=request_seconds(settings.webhook),
            settings=ClientSettings(retries=_RETRIES),
        )
    except InputError as error:
        _end(error)
    configure_logs(options["log_level"], as_json=True)
    try:
        run(client, source, settings)
    except BerthError as error:
        _end(error)


def add_options(command: click.Command, capabilities: Iterable[type[Capability]]) -> None:
    """Add the options of capabilities to a command, each after the option that it belongs to in the help."""
    for capability in capabilities:
        if capability.command is not None:
            names = [parameter.name for parameter in command.params]
            position = names.index(capability.command.after) + 1
            command.params[position:position] = capability.command.options


add_options(main, CAPABILITIES)


def _end(error: BerthError) -> NoReturn:
    """Print an error as one line and exit with its code."""
    click.echo(f"Error: {printable_line(str(error))}", err=True)
    sys.exit(error.exit_code)


def request_seconds(webhook: WebhookSettings) -> float:
    """Return for how long calls wait for an answer.

    That is longer than the API server waits for the webhook, since until then it does not answer the creation of a pod.
    """
    return max(_REQUEST_SECONDS, webhook.timeout_seconds + _REQUEST_SECONDS / 2)


def read_settings(options: dict[str, Any]) -> OperatorSettings:
    """Return the settings for the options; raises `InputError` with the option or setting."""
    health_host, health_port = parse_address("--health-address", options["health_address"])
    return OperatorSettings(
        placeholders=PlaceholderSettings(namespace=options["namespace"], image=options["image"]),
        webhook=WebhookSettings(
            host=options["webhook_host"].strip("[]"),
            port=options["webhook_port"],
            url=read_base_address("--webhook-url", options["webhook_url"]),
            service=options["webhook_service"],
            certificate_seconds=read_seconds("--certificate-life", options["certificate_life"]),
            certificate_folder=options["certificate_folder"],
            drain_seconds=options["drain_seconds"],
            timeout_seconds=options["webhook_timeout_seconds"],
        ),
        handover=HandoverSettings(at_once=options["handovers_at_once"]),
        limits=read_limits(options),
        capabilities=tuple(
            capability.command.read(options) for capability in CAPABILITIES if capability.command is not None
        ),
        identity=options["identity"] or unique_identity(),
        lease_seconds=options["lease_seconds"],
        retention_seconds=options["retention_seconds"],
        unschedulable_seconds=options["unschedulable_seconds"],
        node_lost_seconds=options["node_lost_seconds"],
        sweep_seconds=options["sweep_seconds"],
        workers=options["workers"],
        health_host=health_host,
        health_port=health_port,
    )


def read_base_address(option: str, text: str) -> str:
    """Return the text if it is an https address with a host, or empty; raises InputError."""
    try:
        is_usable = not text or (text.startswith("https://") and bool(urlsplit(text).hostname))
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InputError(option, text, "an address that begins with https:// and names a host")
    return text


def read_seconds(option: str, text: str) -> float:
    """Return a duration in seconds; raises InputError."""
    try:
        return parse_duration(text).total_seconds()
    except DurationError as error:
        raise InputError(option, text, error.expected) from error


def read_limits(options: dict[str, Any]) -> LimitSettings:
    """Return the limits for the options; raises InputError."""
    return LimitSettings(
        default=parse_limit("--limit", options["limit"]),
        by_namespace=parse_namespace_limits("--namespace-limit", options["namespace_limits"]),
        cluster=parse_limit("--cluster-limit", options["cluster_limit"], LimitSettings().cluster),
        control_plane_nodes=options["control_plane_nodes"],
        dry_runs=not options["no_dry_runs"],
        tolerations=parse_namespace_tolerations("--namespace-tolerations", options["namespace_tolerations"]),
        highest_priority=options["highest_priority"],
        guarded_classes=frozenset(filter(None, options["guarded_priority_classes"].split(","))),
    )


def run(client: KubeClient, source: ConfigurationSource, settings: OperatorSettings) -> None:
    """Run until a signal or a fatal error ends kopf; raises the `BerthError` of a failed start."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    collect_garbage_rarely()
    share_one_heap()
    allow_many_files()
    program = App(client, settings, SystemClock())
    stream = ReservationStream(program.note_listed, program.apply_handled)
    program.silence = Silence(client.silent_seconds, stream.silent_seconds)
    connection = Connection(source, stream)

    def declare(registry: kopf.OperatorRegistry, stop_flag: asyncio.Event) -> None:
        declare_process(registry, program, connection, stream, stop_flag)
        declare_reservations(registry, program)

    try:
        asyncio.run(run_kopf(program, stream, declare, settings.identity))
    except Exception:
        # For a start-up handler that failed kopf raises an ActivityError, which does not say why.
        if program.failure is None:
            raise
    if program.failure is not None:
        raise program.failure
