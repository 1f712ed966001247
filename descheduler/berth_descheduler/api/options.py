"""Owns the service's options about the HTTP interface; needs nothing that the interface itself needs.

It does not own what they mean: that stands with `settings`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from prometheus_client import CollectorRegistry

from berth_core.errors import InputError
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.options.command_options import with_options
from berth_descheduler.options.option_errors import option_of
from berth_kube.client import ClientSettings, connect
from berth_service.addresses import parse_address

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS: Final = "--rest-address"
_NEEDED: Final = ("fastapi", "uvicorn", "jinja2")


def rest_options(command: F) -> F:
    """Add the options from which `rest_settings` makes the settings."""
    file = click.Path(path_type=Path)
    options = [
        click.option(_ADDRESS, metavar="HOST:PORT", help="Where to answer REST requests; default: nowhere."),
        click.option(
            "--rest-certificate",
            metavar="FILE",
            type=file,
            help="PEM file of the certificate with its chain, read anew when it changes; without it, REST is plain "
            "HTTP and takes a loopback address only.",
        ),
        click.option("--rest-key", metavar="FILE", type=file, help="PEM file of the certificate's key."),
        click.option(
            "--rest-audience",
            metavar="NAME",
            multiple=True,
            help="Take only tokens that were made for this audience; may be repeated. Default: the API server's own.",
        ),
    ]
    return with_options(command, options)


def rest_settings(options: dict[str, Any]) -> RestSettings | None:
    """Return where and how to answer, None for nowhere; raises `InputError` naming the option."""
    if options["rest_address"] is None:
        for name in ("rest_certificate", "rest_key", "rest_audience"):
            if options[name]:
                option = option_of(name)
                raise InputError(_ADDRESS, None, f"HOST:PORT beside {option}", said="not given")
        return None
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        text = f"{' and '.join(missing)} installed: the extra berth[descheduler] has them"
        raise InputError(_ADDRESS, options["rest_address"], text)
    host, port = parse_address(_ADDRESS, options["rest_address"])
    return RestSettings(
        host=host.strip("[]"),
        port=port,
        certificate=options["rest_certificate"],
        key=options["rest_key"],
        audiences=tuple(options["rest_audience"]),
    )


def serve_rest(
    settings: RestSettings | None, registry: CollectorRegistry, *, kubeconfig: str | None, context: str | None
) -> ExitStack:
    """Return what is to be left at the end of the service: the server, which runs by then, or nothing.

    It has connections of its own, so that those who ask much do not keep the service from its work.
    """
    leaving = ExitStack()
    if settings is None:
        return leaving
    from berth_descheduler.api.server import RestServer  # noqa: PLC0415 - needs an extra

    with leaving:
        limits = ClientSettings(max_connections=settings.limits.workers + 1)
        client = leaving.enter_context(
            connect(kubeconfig=kubeconfig, context=context, user_agent="berth-descheduler/rest", settings=limits)
        )
        leaving.enter_context(RestServer(client, settings, registry))
        return leaving.pop_all()
    raise AssertionError("the stack passes every error on")
