"""Scripts and style sheets of the viewer (`viewer/templates/`), served under URLs that change with their content."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.responses import Response

from kofn.render.page import read_template, wrap_script

OWN = (
    "viewer.css",
    "viewer.js",
    "runs.js",
    "run.js",
    "live.js",
    "choose.js",
    "explore.js",
    "labels.js",
    "compare_form.js",
)
SHARED = ("page.css", "page.js", "compare.js", "trend.js")  # with report.html and its siblings
_CONTENT_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@cache
def asset(name: str) -> tuple[bytes, str]:
    """The bytes of a script or a style sheet, and its content type."""
    content_type = _CONTENT_TYPES[name.rpartition(".")[2]]
    text = (
        read_template(name)
        if name in SHARED
        else (files("kofn.viewer") / "templates" / name).read_text(encoding="utf-8")
    )
    return (wrap_script(text) if name.endswith(".js") else text).encode(), content_type


@cache
def static_url(name: str) -> str:
    """The URL of a script or a style sheet; it holds a hash of the content, so that browsers may cache it for good."""
    return f"/static/{sha256(asset(name)[0]).hexdigest()[:16]}/{name}"


def asset_response(name: str) -> Response:
    """A script or a style sheet; any other name is not found, whatever files there are."""
    if name not in (*OWN, *SHARED):
        return Response(status_code=404)
    data, content_type = asset(name)
    return Response(data, media_type=content_type, headers={"cache-control": "public, max-age=31536000, immutable"})


def preload() -> None:
    """Read every asset, so that the first page need not."""
    for name in (*SHARED, *OWN):
        static_url(name)
