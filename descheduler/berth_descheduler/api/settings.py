"""Settings of the HTTP interface: addresses, limits and times."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from berth_core import DEFAULT_NAMESPACE, InputError, require_positive
from berth_kube import is_loopback
from berth_service.listening import join_address


@dataclass(frozen=True, slots=True)
class RestLimits:
    """How much is accepted."""

    body_bytes: int = 64 * 1024
    """The largest body of a request."""

    body_bytes_per_second: int = 4 * 1024
    """The least average rate of a body, after `body_grace_seconds`."""

    drained_bytes: int = 1024 * 1024
    """How much of a body that is too large is read and dropped, so that its sender reads the answer."""

    header_bytes: int = 16 * 1024
    """All headers of a request together."""

    headers: int = 64
    """Headers of a request."""

    target_bytes: int = 16 * 1024
    """Path and query of a request; valid ones need little more than half of it."""

    connections: int = 256
    """Open connections; a further one replaces an idle one, or is closed."""

    connections_per_peer: int = 64
    """The same for one address."""

    handshakes: int = 256
    """TLS handshakes at once; a further one replaces the oldest of the address that has most of them."""

    unauthenticated_requests: int = 6
    """Requests at once that are not authenticated yet, fewer than `workers`; the others wait in turn."""

    unauthenticated_per_peer: int = 4
    """The same for one address."""

    requests: int = 32
    """Requests that are worked on at once; streams are not counted, nor requests whose body has not come yet."""

    requests_per_caller: int = 8
    """Requests of one caller at once, with those whose body has not come yet."""

    rate_per_second: float = 20.0
    """Sustained rate of one caller's requests."""

    burst: int = 40
    """Requests that a caller may make at once after a pause."""

    streams: int = 64
    """Event streams that are open at once."""

    streams_per_caller: int = 8
    """The same for one caller."""

    workers: int = 8
    """Threads that call the API server, and connections to it."""

    remembered: int = 1024
    """Tokens, rights and callers that are cached at once."""

    events_kept: int = 4096
    """Events of a plan that a reader can ask for again."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            require_positive(setting.name, getattr(self, setting.name))


@dataclass(frozen=True, slots=True)
class RestTimes:
    """Time limits, in seconds."""

    header_seconds: float = 10.0
    """From a connection's first chance to send until its request's headers are complete."""

    body_seconds: float = 10.0
    """From the headers until the body is complete."""

    body_grace_seconds: float = 3.0
    """From the headers until a body has to come at the least rate."""

    idle_seconds: float = 15.0
    """Between two requests on one connection."""

    write_seconds: float = 30.0
    """How long a peer may not read what is sent before its connection is cut."""

    request_seconds: float = 30.0
    """For a whole request other than a stream."""

    call_seconds: float = 10.0
    """For one call to the API server, retries included."""

    authentication_wait_seconds: float = 10.0
    """How long a request may wait to be authenticated."""

    identity_seconds: float = 10.0
    """How long an accepted token and a granted right are cached."""

    rejected_seconds: float = 2.0
    """How long a rejected token and a denied right are cached."""

    stream_seconds: float = 3600.0
    """After this a stream ends, and its reader reconnects."""

    # The HTML standard advises a comment about every 15 seconds, as proxies drop silent connections.
    heartbeat_seconds: float = 15.0
    """Longest silence of a stream; the right to it is checked as often."""

    linger_seconds: float = 30.0
    """How long a plan stays watched after its last reader left."""

    capacity_seconds: float = 5.0
    """How long a measurement of the cluster is cached."""

    findings_seconds: float = 15.0
    """How long it takes at least from one look for findings to the next, which lists most kinds."""

    stop_seconds: float = 5.0
    """How long open requests may take at shutdown."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            require_positive(setting.name, getattr(self, setting.name))


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Where the interface listens, and its limits."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""

    certificate: Path | None = None
    """PEM file of the certificate and its chain; None: plain HTTP, on a loopback address only."""

    key: Path | None = None
    """PEM file of the certificate's key."""

    namespace: str = DEFAULT_NAMESPACE
    """Berth's own."""

    audiences: tuple[str, ...] = ()
    """Audiences of which a token must have one; (): the API server's own."""

    ui: bool = False
    """Whether `/ui` serves the page for people; what it shows it asks for with the token of its reader."""

    local_token: str = field(default="", repr=False)
    """The one token of a service that a person runs for themselves, with the rights of their kubeconfig; "": callers
    have tokens of the cluster."""

    prometheus_url: str = ""
    """Address of a dashboard with the metrics over longer times; "" for none."""

    limits: RestLimits = field(default_factory=RestLimits)
    times: RestTimes = field(default_factory=RestTimes)

    def __post_init__(self) -> None:
        """Refuse half a certificate, and tokens in plain text."""
        if (self.certificate is None) != (self.key is None):
            given_file, missing_file = ("certificate", "key") if self.certificate else ("key", "certificate")
            raise InputError(f"--rest-{missing_file}", None, f"a PEM file beside --rest-{given_file}", said="not given")
        if self.prometheus_url and not self.prometheus_url.startswith(("https://", "http://")):
            raise InputError("--rest-prometheus-url", self.prometheus_url, "an address that begins with https://")
        if self.certificate is None and not is_loopback(self.host):
            raise InputError(
                "--rest-address",
                join_address(self.host, self.port),
                "a loopback address such as 127.0.0.1:8080, or --rest-certificate and --rest-key as well: tokens would"
                " travel in the open",
            )
