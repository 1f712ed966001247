"""The service `berth-descheduler`: its options, health, metrics, signals, exit codes."""

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import structlog
from prometheus_client import CollectorRegistry

from berth_core import DESCHEDULER_LEASE, BerthError, Clock, InputError, SystemClock, printable_line
from berth_descheduler import telemetry
from berth_descheduler.api.capacity_history import CapacityHistory
from berth_descheduler.api.options import rest_options, rest_settings
from berth_descheduler.api.server import serve_rest
from berth_descheduler.capacity_meter import CapacityMeter, CapacitySettings
from berth_descheduler.controller.leader import LeaderElector
from berth_descheduler.controller.store import ServiceContext
from berth_descheduler.controller.warm_up import warm_up
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.metrics import CycleMetrics
from berth_descheduler.migration.operator.cleanup import clean_up_after_operator
from berth_descheduler.observers import CycleObserver, join_observers
from berth_descheduler.options import (
    GroupedCommand,
    capacity_options,
    capacity_settings,
    cluster_options,
    cycle_settings,
    duration_option,
    duration_option_or_none,
    naming_options,
    planner_options,
    run_options,
    run_planner_settings,
    settings_to_serve,
)
from berth_descheduler.outcome import Outcome
from berth_descheduler.picture import Picture
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import RunDefaults, read_plan_settings
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.run_watch import RunWatch
from berth_descheduler.settings import PLAN_RETENTION, CycleSettings, Service, ServiceSettings
from berth_descheduler.traces import plan_traces
from berth_kube import LEASES, PRIORITY_CLASSES, KubeClient, await_rights, connect
from berth_service.health import Answer, HealthServer
from berth_service.logs import configure_logs
from berth_service.memory import collect_garbage_rarely, share_one_heap
from berth_service.process import allow_many_files, parse_address
from berth_service.signals import stop_on_signals

_LOG = structlog.get_logger(__name__)
_FAILED = 1
_PLAN_RETENTION = f"{PLAN_RETENTION // timedelta(hours=1)}h"


class DeschedulerService:
    """Runs cycles until it is asked to stop."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        settings: CycleSettings,
        planner: PlannerSettings,
        stop: threading.Event,
        watchers: tuple[CycleObserver, ...] = (),
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._planner = planner
        self._stop = stop
        self._watchers = watchers
        self.picture = Picture(client, settings.namespace)
        self.run_watch = RunWatch(clock)
        self.registry = CollectorRegistry()
        self.busy = False
        self.metrics = CycleMetrics(self.registry, clock)

    def readiness(self) -> dict[str, object]:
        """Return ready: there is nothing to wait for."""
        return {"ready": True, "running": self.busy}

    def run(self, settings: ServiceSettings) -> bool:
        """Serve as the settings say; return whether all went as planned."""
        if settings.interval is None:
            return self.run_once().clean
        self.run_at(settings.interval)
        return True

    def run_once(self) -> Outcome:
        """Run one cycle; raises `BerthError`."""
        planner = self._planner.at(self._clock.now())
        defaults, registry = RunDefaults(self._settings, planner), installed_plugins()
        self.busy = True
        try:
            with self.run_watch.running() as clock:
                context = CycleContext(
                    self._client,
                    clock,
                    join_observers(self.metrics, self._watchers),
                    self._stop,
                    settings_of_plan=lambda plan: read_plan_settings(
                        self._client, plan, defaults, registry, clock.now()
                    ),
                    picture=self.picture,
                )
                return Cycle(context, self._settings, planner).run()
        except BerthError:
            self.metrics.cycle_failed()
            raise
        finally:
            self.busy = False

    def run_at(self, interval: timedelta) -> None:
        """Run cycles until asked to stop; the interval is between their starts.

        A cycle that fails does not end the loop.
        """
        with clean_up_after_operator(self._client, self._clock, self._settings):
            while not self._stop.is_set():
                # By the monotonic clock: an interval does not shrink or grow where the node's time is set.
                next_at = self._clock.monotonic() + interval.total_seconds()
                try:
                    self.run_once()
                except BerthError as error:
                    _LOG.error(telemetry.CYCLE_FAILED, **{telemetry.KEY_ERROR: str(error)})
                self._stop.wait(max(0.0, next_at - self._clock.monotonic()))


class PolicyService:
    """Serves the cluster's policies until it is asked to stop."""

    def __init__(self, context: ServiceContext, stop: threading.Event) -> None:
        self.picture = context.picture
        self.registry = CollectorRegistry()
        self.metrics = PolicyMetrics(self.registry, context.clock)
        self._context = context
        self._elector = LeaderElector(context, self.metrics, stop)
        self.run_watch = self._elector.run_watch

    def readiness(self) -> dict[str, object]:
        """Return whether this replica does its part."""
        return self._elector.readiness()

    def run(self, _settings: ServiceSettings) -> bool:
        """Serve the policies; each reports its own errors."""
        warm_up(self._context)
        self._elector.serve()
        return True


@click.command(
    "berth-descheduler",
    cls=GroupedCommand,
    context_settings={
        "auto_envvar_prefix": "BERTH_DESCHEDULER",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
    },
)
@cluster_options
@planner_options
@run_options
@click.option("--policies", is_flag=True, help="Serve the cluster's DeschedulerPolicies; the default.")
@click.option("--once", is_flag=True, help="Run one cycle and end; exit code 1 if it did not all go as planned.")
@click.option("--interval", metavar="DURATION", help="Run a cycle at once and then at this interval.")
@click.option(
    "--plan-retention",
    default=_PLAN_RETENTION,
    show_default=True,
    metavar="DURATION",
    help="With --policies: delete plans without a policy this long after they are over; none: never.",
)
@click.option(
    "--health-address", default="127.0.0.1:8081", show_default=True, help="HOST:PORT of /healthz, /readyz, /metrics."
)
@rest_options
@capacity_options
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Log from this level up.",
)
def serve(kubeconfig: str | None, context: str | None, **options: Any) -> int:  # noqa: ANN401 - read once below
    """Defragment the cluster: plan, reserve, evict, verify. It first ends what an interrupted run began."""
    collect_garbage_rarely()
    share_one_heap()
    allow_many_files()
    service_settings = read_service_settings(options)
    settings = cycle_settings(options, trigger=service_settings.service.value)
    serves_policies = service_settings.service is Service.POLICIES
    planner = settings_to_serve(options) if serves_policies else run_planner_settings(options)
    rest_server_settings = rest_settings(options)
    capacity = CapacitySettings(every_seconds=None) if options["once"] else capacity_settings(options)
    configure_logs(options["log_level"], as_json=True)
    with (
        connect(kubeconfig=kubeconfig, context=context, user_agent="berth-descheduler") as client,
        stop_on_signals() as stop,
        naming_options(options),
        plan_traces(clock := SystemClock()) as watchers,
    ):
        service: PolicyService | DeschedulerService
        if serves_policies:
            defaults = RunDefaults(settings, planner)
            service = PolicyService(
                ServiceContext(
                    client,
                    clock,
                    defaults,
                    installed_plugins(),
                    service_settings.plan_retention,
                    Picture(client, settings.namespace),
                    watchers,
                ),
                stop,
            )
        else:
            service = DeschedulerService(client, clock, settings, planner, stop, watchers)
        history = CapacityHistory()
        with (
            serve_rest(rest_server_settings, service.registry, history, kubeconfig=kubeconfig, context=context),
            CapacityMeter(service.picture, clock, service.metrics.capacity, capacity, history.keep),
        ):
            return _serve(service, service_settings, settings, lambda: _await_rights(client, settings.namespace))


def _await_rights(client: KubeClient, namespace: str) -> None:
    """Wait until a new API server knows this service's permissions."""
    await_rights(
        SystemClock(),
        lambda: client.get(LEASES, DESCHEDULER_LEASE, namespace=namespace),
        lambda: client.list(PRIORITY_CLASSES),
    )


def _serve(
    service: PolicyService | DeschedulerService,
    service_settings: ServiceSettings,
    settings: CycleSettings,
    await_readiness: Callable[[], None],
) -> int:
    def answer_readyz() -> Answer:
        state = service.readiness()
        return Answer.from_state(state, good=bool(state["ready"]))

    def answer_healthz() -> Answer:
        is_stuck = service.run_watch.is_stuck()
        state = {"healthy": not is_stuck, "runSilentSeconds": round(service.run_watch.silent_seconds())}
        return Answer.from_state(state, good=not is_stuck)

    with HealthServer(
        service_settings.health_host,
        service_settings.health_port,
        service.registry,
        readyz=answer_readyz,
        healthz=answer_healthz,
    ) as server:
        _LOG.info(
            telemetry.STARTED,
            **{telemetry.KEY_IDENTITY: settings.identity, telemetry.KEY_ADDRESS: server.address},
        )
        await_readiness()
        code = 0 if service.run(service_settings) else _FAILED
        _LOG.info(telemetry.STOPPED)
    return code


def read_service_settings(options: dict[str, Any]) -> ServiceSettings:
    """Return the service's task and address; raises `InputError` naming the option."""
    given_options = [option for option in ("policies", "once", "interval") if options[option]]
    if len(given_options) > 1:
        text = f"--{given_options[0]} and --{given_options[1]}"
        raise InputError("what to do", None, "one of --policies, --once and --interval DURATION", said=text)
    service = Service((given_options or ["policies"])[0].capitalize())
    host, port = parse_address("--health-address", options["health_address"])
    interval = None
    if service is Service.INTERVAL:
        interval = timedelta(seconds=duration_option(options, "interval"))
    kept_seconds = duration_option_or_none(options, "plan_retention")
    return ServiceSettings(
        service=service,
        interval=interval,
        plan_retention=None if kept_seconds is None else timedelta(seconds=kept_seconds),
        health_host=host,
        health_port=port,
    )


def main() -> None:
    """Run the service and end the process with its exit code: that of an error, or 1 where a cycle failed."""
    try:
        code = serve.main(standalone_mode=False)
    except click.Abort:
        sys.exit(_FAILED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BerthError as error:
        click.echo(f"berth-descheduler: {printable_line(str(error))}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
