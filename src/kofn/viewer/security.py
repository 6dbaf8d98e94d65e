"""Access checks and response headers: who may send requests, and what a browser may do with the responses.

A page of another site can make a browser send requests to a server on this machine. So the name in `Host` must be ours
(in DNS rebinding another name leads here), requests that change something must come from our own pages, and no other
page may embed a response. A viewer that other machines can reach needs a token as well.
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
MIN_TOKEN_LENGTH = 16  # characters
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "style-src-attr 'unsafe-inline'",  # charts and bars have their sizes there
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
_SAFE_METHODS = ("GET", "HEAD")


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


class SecurityMiddleware:
    """The application behind its checks. `token`: None for a viewer that only this machine can reach."""

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1", token: str | None = None) -> None:
        self.app, self.token = app, token
        # with a token the viewer may have any name that its network gives it; without one only these
        self.hosts = None if token is not None and not is_loopback(host) else LOOPBACK | {host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self.check(scope)
        response: ASGIApp = refusal if refusal is not None else self.app

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await response(scope, receive, send_with_headers)

    def check(self, scope: Scope) -> Response | None:
        """The response that refuses a request, or None where it may pass."""
        headers = Headers(scope=scope)
        if self.hosts is not None and host_name(headers.get("host", "")) not in self.hosts:
            why = "this viewer answers to 127.0.0.1 and localhost: open the address that `kofn view` printed"
            return _refusal(421, why)
        if not scope["query_string"].isascii():
            return _refusal(400, "an address is written in ASCII, other characters as %xx")
        if not _is_same_origin(scope["method"], headers):
            return _refusal(403, "asked for by a page of another site: refused")
        return None if self.token is None else self._check_token(scope, headers, self.token)

    def _check_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """None where the request has the token; a token in the query is moved to a cookie, out of the address bar."""
        params = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(params).get("token")
        if given is not None and _equal(given, token) and scope["method"] in _SAFE_METHODS:
            rest = urlencode([pair for pair in params if pair[0] != "token"])
            path = scope["raw_path"].decode("ascii", "replace") or "/"
            # one slash: a path that begins with two would lead to another host
            redirect = RedirectResponse("/" + path.lstrip("/") + (f"?{rest}" if rest else ""), status_code=303)
            redirect.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scope.get("scheme") == "https")
            return redirect
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        pairs = [part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";")]
        cookies = [value.strip('"') for name, _, value in pairs if name == COOKIE]
        if any(_equal(one, token) for one in (bearer, *cookies)):
            return None
        return _refusal(401, "a token is needed: open the whole address that `kofn view` printed, with ?token= in it")


def _is_same_origin(method: str, headers: Headers) -> bool:
    """Whether the request comes from one of our own pages, or somebody typed the URL or followed a link."""
    # without Sec-Fetch headers it is no browser, or an old one
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    if method in _SAFE_METHODS:
        return site in (None, "none", "same-origin") or mode == "navigate"
    origin = headers.get("origin")
    if method != "POST" or site not in (None, "same-origin"):
        return False
    return origin is not None and origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _equal(given: str, token: str) -> bool:
    """Compared in constant time, so that the time of a refusal does not give the token away."""
    return hmac.compare_digest(given.encode(), token.encode())


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"kofn: {why}\n", status_code=status)
