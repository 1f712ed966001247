"""The page for people at `/ui`: static files that ask the HTTP interface with the token of their reader.

The page holds nothing of the cluster itself, so its files need no token.
"""

from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_FILES: Final = {
    "/ui": ("page.html", "text/html; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""Path to file and media type."""


def build_page_routes(*, switched_on: bool) -> APIRouter:
    """Return the routes of the page's files, none where it is switched off."""
    router = APIRouter()
    for path, (name, media_type) in _FILES.items() if switched_on else ():
        content = (files(__package__) / "static" / name).read_bytes()
        _add_file(router, path, content, media_type)
    return router


def _add_file(router: APIRouter, path: str, content: bytes, media_type: str) -> None:
    @router.get(path, include_in_schema=False)
    async def static_file() -> Response:
        return Response(content, headers={"Content-Security-Policy": _POLICY}, media_type=media_type)
