"""The service's options for the HTTP interface."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from berth_core import InputError
from berth_descheduler.api.settings import RestSettings
from berth_descheduler.options import option_of, with_options
from berth_service.process import parse_address

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS: Final = "--rest-address"


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
        click.option("--rest-ui", is_flag=True, help="Serve a page for people at /ui beside REST."),
        click.option(
            "--rest-prometheus-url",
            metavar="URL",
            help="Address of a dashboard with Berth's metrics over longer times; the page links to it.",
        ),
    ]
    return with_options(command, options)


def rest_settings(options: dict[str, Any]) -> RestSettings | None:
    """Return the settings, None without an address; raises `InputError` naming the option."""
    if options["rest_address"] is None:
        for required in ("rest_certificate", "rest_key", "rest_audience", "rest_ui", "rest_prometheus_url"):
            if options[required]:
                option = option_of(required)
                raise InputError(_ADDRESS, None, f"HOST:PORT beside {option}", said="not given")
        return None
    host, port = parse_address(_ADDRESS, options["rest_address"])
    return RestSettings(
        host=host,
        port=port,
        certificate=options["rest_certificate"],
        key=options["rest_key"],
        audiences=tuple(options["rest_audience"]),
        namespace=options["namespace"],
        ui=options["rest_ui"],
        prometheus_url=options["rest_prometheus_url"] or "",
    )
