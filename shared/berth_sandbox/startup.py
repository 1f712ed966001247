"""Owns the order in which a sandbox comes up, from empty folder to ready control plane.

It does not own the handle that callers use: that is `sandbox`.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterable

from berth_kube.client import ClientSettings, KubeClient, connect
from berth_kube.retries import NO_RETRIES
from berth_sandbox import bootstrap, processes, readiness
from berth_sandbox.certificates import write_certificates
from berth_sandbox.components import Binaries, Component, ComponentPlace, build_command
from berth_sandbox.configuration import write_configuration
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import PortReservation
from berth_sandbox.record import SandboxRecord, write_record
from berth_sandbox.settings import SandboxSettings

Progress = Callable[[str], None]
"""Takes one line of text for people."""

_FIRST = (Component.ETCD, Component.API_SERVER)


def bring_up(folder: SandboxFolder, binaries: Binaries, settings: SandboxSettings, progress: Progress) -> SandboxRecord:
    """Start every component in the folder and return the record once all are ready and Berth is installed."""
    deadline = time.monotonic() + settings.timeout_seconds
    now = dt.datetime.now(dt.UTC)
    reservation = PortReservation.make()
    try:
        record = SandboxRecord(
            settings=settings,
            ports=reservation.ports,
            binaries={name: str(path) for name, path in binaries.items()},
            started=now.isoformat(timespec="seconds"),
        )
        write_certificates(folder, now=now)
        write_configuration(folder, reservation.ports, settings)
        write_record(folder, record)
        _start_control_plane(record.place(folder), settings, deadline, progress)
    finally:
        reservation.release()
    return record


def _start_control_plane(place: ComponentPlace, settings: SandboxSettings, deadline: float, progress: Progress) -> None:
    """Start the API server first, then everything that needs it, and install Berth meanwhile."""
    progress("starting etcd and kube-apiserver")
    start_components(_FIRST, place)
    readiness.wait_until_ready(_FIRST, place.folder, place.ports, deadline=deadline)
    second = tuple(component for component in expected_components(settings) if component not in _FIRST)
    progress("starting " + ", ".join(second))
    start_components(second, place)
    with connect_as_admin(place.folder) as client:
        bootstrap.install_berth(client)
    readiness.wait_until_ready(second, place.folder, place.ports, deadline=deadline)
    with connect_as_admin(place.folder, ClientSettings(retries=NO_RETRIES)) as prober:
        readiness.wait_for(
            lambda: bootstrap.is_installed(prober),
            component=Component.CONTROLLER_MANAGER,
            folder=place.folder,
            deadline=deadline,
        )


def expected_components(settings: SandboxSettings) -> tuple[Component, ...]:
    """Return the components that a sandbox of these settings has."""
    return tuple(
        component for component in Component if component is not Component.SECOND_SCHEDULER or settings.second_scheduler
    )


def connect_as_admin(folder: SandboxFolder, settings: ClientSettings | None = None) -> KubeClient:
    """Return a client that may do everything."""
    return connect(kubeconfig=str(folder.kubeconfig), user_agent="berth-sandbox", settings=settings)


def start_components(components: Iterable[Component], place: ComponentPlace) -> None:
    """Start components without waiting for them."""
    for component in components:
        processes.spawn(component, build_command(component, place), place.folder)
