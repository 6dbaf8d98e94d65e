"""Who may ask, and what a browser may do with the answer. Everything the viewer sends goes through here.

A page of another site can make a browser ask a server on this machine. So the name in `Host` must be ours (a name that
is made to lead here is not), what changes something must come from our own pages, and no other page may embed an
answer. A viewer that others can reach asks for a token as well.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
COOKIE = "kofn_token"
LEAST_TOKEN = 16  # characters
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # charts set styles on their elements
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SAFE = ("GET", "HEAD")


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("127.0.0.1:8000"), host_name("[::1]:8000"), host_name("LocalHost")
    ('127.0.0.1', '::1', 'localhost')
    """
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("127.9.9.9"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """The application behind its checks. `token`: None for a viewer that only this machine can reach."""

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1", token: str | None = None) -> None:
        self.app, self.token = app, token
        # where a token is asked for, a viewer has whatever name its network gives it
        self.hosts = None if token is not None and not is_loopback(host) else LOOPBACK | {host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self.refused(scope)
        answer: ASGIApp = refused if refused is not None else self.app

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await answer(scope, receive, headed)

    def refused(self, scope: Scope) -> Response | None:
        """What to say instead, or None where the request may pass."""
        headers = Headers(scope=scope)
        if self.hosts is not None and host_name(headers.get("host", "")) not in self.hosts:
            return _no(421, "this viewer answers to 127.0.0.1 and localhost: open the address that `kofn view` printed")
        if not scope["query_string"].isascii():
            return _no(400, "an address is written in ASCII, other characters as %xx")
        if not _is_own(scope["method"], headers):
            return _no(403, "asked for by a page of another site: refused")
        return None if self.token is None else self._without_token(scope, headers, self.token)

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(asked).get("token")
        if given is not None and _same(given, token) and scope["method"] in _SAFE:
            rest = urlencode([pair for pair in asked if pair[0] != "token"])
            path = scope["raw_path"].decode("ascii", "replace") or "/"
            again = RedirectResponse("/" + path.lstrip("/") + (f"?{rest}" if rest else ""), status_code=303)
            again.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scope.get("scheme") == "https")
            return again
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if _same(bearer, token) or any(_same(c, token) for c in _cookies(headers)):
            return None
        return _no(401, "a token is needed: open the whole address that `kofn view` printed, with ?token= in it")


def _is_own(method: str, headers: Headers) -> bool:
    """Whether one of our own pages asks, a person typed the address, or followed a link to a page."""
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    if method in _SAFE:
        return site in (None, "none", "same-origin") or mode == "navigate"
    origin = headers.get("origin")
    if method != "POST" or site not in (None, "same-origin"):
        return False
    return origin is not None and origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _cookies(headers: Headers) -> list[str]:
    pairs = [part.strip().partition("=") for one in headers.getlist("cookie") for part in one.split(";")]
    return [value.strip('"') for name, _, value in pairs if name == COOKIE]


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _no(status: int, why: str) -> Response:
    return PlainTextResponse(f"kofn: {why}\n", status_code=status)
