"""Access to a person's own service on their own machine: a token for this run, and this machine's own host names.

Everything is read with the person's own kubeconfig, so the API server alone says what they may do. Any page of the web
can send a browser to a loopback address; a name that resolves to it (DNS rebinding) shows in the Host.
"""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from berth_core import Clock
from berth_descheduler.api.authentication import Authority
from berth_descheduler.api.concurrency import Workers
from berth_descheduler.api.problems import ProblemError, ProblemKind
from berth_descheduler.api.request_guard import header_values, send_problem
from berth_descheduler.api.settings import RestSettings
from berth_kube import Access, KubeClient, Subject, review_own_access, review_own_user

_HOSTS = ("127.0.0.1", "localhost")


class LocalAuthority(Authority):
    """Knows one token; whoever sends it is the user of the kubeconfig."""

    def __init__(self, client: KubeClient, clock: Clock, workers: Workers, settings: RestSettings) -> None:
        super().__init__(client, clock, workers, settings)
        self._token = settings.local_token.encode()

    def review_subject(self, token: str) -> Subject | None:
        # A comparison that ends at the first difference would tell by its time how much of a guess is right.
        is_known = hmac.compare_digest(token.encode(), self._token)
        return review_own_user(self._client) if is_known else None

    def review_right(self, subject: Subject, access: Access) -> bool:
        del subject
        return review_own_access(self._client, access)


class HostGuard:
    """An ASGI application that passes on requests whose Host is this machine and whose Origin, if any, is its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it by its Host or Origin."""
        _, port = scope["server"]
        hosts = {f"{host}:{port}" for host in _HOSTS}
        given_hosts = header_values(scope, b"host")
        origins = header_values(scope, b"origin")
        if len(given_hosts) != 1 or given_hosts[0].lower() not in hosts:
            text = f"the header Host is {', '.join(given_hosts) or 'missing'}; expected {' or '.join(sorted(hosts))}"
        elif any(origin.lower() != f"http://{given_hosts[0].lower()}" for origin in origins):
            text = f"the header Origin is {', '.join(origins)}; expected that of this page"
        else:
            await self._app(scope, receive, send)
            return
        await send_problem(scope, send, ProblemError(ProblemKind.FORBIDDEN, text), close=True)
