"""The commands `berth sandbox up | down | status | kubeconfig | exec`."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from berth_descheduler.options import Output, output_option, write_described
from berth_sandbox.bootstrap import BERTH_ACCOUNTS
from berth_sandbox.go_modules import DEFAULT_KUBERNETES, OTHER_KUBERNETES
from berth_sandbox.real_nodes.images import APP_IMAGE
from berth_sandbox.sandbox import DEFAULT_NAME, Sandbox
from berth_sandbox.settings import KUBERNETES_VARIABLE, Pace, SandboxSettings, ScoringStrategy
from berth_service.command_line import OwnGroup, write_line, write_notice
from berth_service.extras import Extra, require
from berth_service.standard_output import give_output_back

_NODES: Final = 10
_SCORING: Final = tuple(strategy.value for strategy in ScoringStrategy)
_PACES: Final = tuple(pace.value for pace in Pace)

_name_option: Final[Callable[..., Any]] = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Which sandbox; several may be up at once."
)


@click.group(cls=OwnGroup)
def sandbox() -> None:
    """Run a real control plane here, with simulated nodes or real ones."""


@sandbox.command()
@_name_option
@click.option(
    "--nodes",
    type=int,
    show_default=f"{_NODES}, none beside real nodes",
    help="How many nodes to simulate; no containers run on them.",
)
@click.option("--node-cpu", default="16", show_default=True, help="Allocatable cpu of each simulated node.")
@click.option("--node-memory", default="64Gi", show_default=True, help="Allocatable memory of each simulated node.")
@click.option("--node-pods", type=int, default=110, show_default=True, help="Pod slots of each simulated node.")
@click.option(
    "--real-nodes",
    type=int,
    default=0,
    show_default=True,
    help="How many real nodes to start: a kubelet and a containerd each, which run containers. Needs Linux and root.",
)
@click.option(
    "--pace",
    type=click.Choice(_PACES),
    default=Pace.QUICK.value,
    show_default=True,
    help="How fast nodes start and end pods: real creates containers for 2 to 20 s, has them ready up to 60 s later, "
    "and ends them by their grace period.",
)
@click.option(
    "--scoring",
    type=click.Choice(_SCORING),
    default=_SCORING[0],
    show_default=True,
    help="How kube-scheduler ranks nodes: LeastAllocated is its own default, MostAllocated packs.",
)
@click.option(
    "--kubernetes",
    default=DEFAULT_KUBERNETES,
    show_default=True,
    envvar=KUBERNETES_VARIABLE,
    help=f"Minor version of the control plane, {min(OTHER_KUBERNETES)} to {max(OTHER_KUBERNETES)}.",
)
@click.option("--second-scheduler", is_flag=True, help="Run another kube-scheduler, named second-scheduler, beside it.")
@click.option("--volcano", is_flag=True, help="Run Volcano's scheduler and controllers, too; built at the first use.")
@click.option(
    "--with-services",
    "services",
    is_flag=True,
    help="Run Berth's operator and descheduler, too; also adds them to a sandbox that is up.",
)
@click.pass_context
def up(
    context: click.Context,
    /,
    *,
    name: str,
    pace: str,
    scoring: str,
    nodes: int | None,
    real_nodes: int,
    **size: Any,  # noqa: ANN401 - click passes the remaining options by name
) -> None:
    """Start a sandbox that stays up until `berth sandbox down`.

    The first start builds the control plane's programs, some 25 minutes of processor time; later ones take seconds.
    """
    if nodes is None:
        nodes = 0 if real_nodes else _NODES
    settings = SandboxSettings(
        name=name, pace=Pace(pace), scoring=ScoringStrategy(scoring), nodes=nodes, real_nodes=real_nodes, **size
    )
    require(Extra.DEMO if settings.services else Extra.SANDBOX, "`berth sandbox up`")
    if settings.services and Sandbox.is_up(name):
        _add_services(context, Sandbox.find(name))
        return
    started = Sandbox.start(settings, progress=write_notice)
    started.detach()
    write_line(f"The sandbox {name!r} is up with {_describe_nodes(settings)}. To look at it with kubectl:\n")
    write_line(f"  export KUBECONFIG={started.kubeconfig}\n")
    if settings.real_nodes:
        write_line(
            f"Real nodes have the image {APP_IMAGE} and no way to a registry. To reach pods by their addresses:\n"
        )
        write_line(f"  berth sandbox exec{_name_argument(name)} -- COMMAND\n")
    if settings.services:
        _say_services_run(started)
    write_line(f"To stop it:\n\n  berth sandbox down{_name_argument(name)}")


def _add_services(context: click.Context, running: Sandbox) -> None:
    """Start the services of a sandbox that is up.

    Raises `click.UsageError` for other options than those with which it was started.
    """
    started_with: dict[str, Any] = msgspec.to_builtins(running.settings)
    for option, value in context.params.items():
        # An option that was not typed has its default, which is no demand on the sandbox that is up.
        is_given = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        if is_given and option not in {"name", "services"} and value != started_with[option]:
            raise click.UsageError(
                f"the sandbox {running.settings.name!r} is up with --{option.replace('_', '-')} "
                f"{started_with[option]}; services alone can be added to it"
            )
    if running.add_services(progress=write_notice):
        _say_services_run(running)
    else:
        write_notice(f"both services of the sandbox {running.settings.name!r} run already")


def _say_services_run(running: Sandbox) -> None:
    write_line(f"Both services run; policies and Reservations have effect. Logs: {running.folder / 'logs'}\n")


@sandbox.command()
@_name_option
def down(name: str) -> None:
    """Stop a sandbox and remove all of it.

    Does nothing if none is up.
    """
    stopped = Sandbox.stop_named(name)
    write_notice(f"the sandbox {name!r} is stopped and removed" if stopped else f"no sandbox {name!r} is up")


@sandbox.command()
@output_option
def status(output: Output) -> None:
    """Show the sandboxes that are up.

    Each with its nodes, its components and where its kubeconfig is.
    """
    described = [_describe(Sandbox.find(sandbox_name)) for sandbox_name in Sandbox.names()]
    if not output.for_people:
        write_described(described, output)
    elif not described:
        write_notice("no sandbox is up; `berth sandbox up` starts one")
    for entry in described if output.for_people else ():
        write_line(f"{entry['name']}: {entry['state']}, {entry['readyNodes']} of {entry['nodes']} nodes ready")
        kinds = f"Kubernetes {entry['kubernetes']}, scoring {entry['scoring']}, pace {entry['pace']}"
        write_line(f"  started     {entry['started']}, {kinds}")
        write_line(f"  kubeconfig  {entry['kubeconfig']}")
        components_text = _join_processes(entry["components"])
        write_line(f"  components  {components_text or 'none is running'}")
        if entry["nodePrograms"]:
            write_line(f"  real nodes  {_join_processes(entry['nodePrograms'])}")


@sandbox.command()
@_name_option
@click.option(
    "--service-account",
    type=click.Choice(BERTH_ACCOUNTS),
    help="The kubeconfig of one of Berth's services, with exactly its rights, instead of the administrator's.",
)
def kubeconfig(name: str, service_account: str | None) -> None:
    """Print the path of a kubeconfig.

    Use it as in `export KUBECONFIG=$(berth sandbox kubeconfig)`.
    """
    named_sandbox = Sandbox.find(name)
    write_line(
        str(named_sandbox.service_account_kubeconfig(service_account) if service_account else named_sandbox.kubeconfig)
    )


@sandbox.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(name: str, command: tuple[str, ...]) -> None:
    """Run a command with the sandbox's kubeconfig, in the network of its real nodes.

    Pods of real nodes are reached by their addresses only from there.
    """
    running_sandbox = Sandbox.find(name)
    if running_sandbox.settings.real_nodes:
        command = running_sandbox.real_nodes.build_command(command)
    give_output_back()
    try:
        os.execvpe(command[0], command, {**os.environ, "KUBECONFIG": str(running_sandbox.kubeconfig)})  # noqa: S606 - the user's
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error


def _describe_nodes(settings: SandboxSettings) -> str:
    """Return how many nodes of which kind there are."""
    real = f"{settings.real_nodes} real node{'' if settings.real_nodes == 1 else 's'}"
    if not settings.real_nodes:
        return f"{settings.nodes} nodes"
    return f"{real} and {settings.nodes} simulated ones" if settings.nodes else real


def _join_processes(pids: Mapping[str, int]) -> str:
    return ", ".join(f"{process} ({pid})" for process, pid in pids.items())


def _name_argument(name: str) -> str:
    """Return the option that names a sandbox, nothing for the default one."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _describe(known_sandbox: Sandbox) -> dict[str, Any]:
    """Return the description of a sandbox."""
    health = known_sandbox.read_health()
    return {
        "name": known_sandbox.settings.name,
        "state": "up" if health.complete else "broken",
        "nodes": health.nodes,
        "readyNodes": health.ready_nodes,
        "kubernetes": known_sandbox.settings.kubernetes,
        "pace": known_sandbox.settings.pace.value,
        "scoring": known_sandbox.settings.scoring.value,
        "started": known_sandbox.started,
        "context": known_sandbox.context,
        "kubeconfig": str(known_sandbox.kubeconfig),
        "components": {component.value: pid for component, pid in health.components.items()},
        "nodePrograms": health.node_programs,
    }
