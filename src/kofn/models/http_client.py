"""The HTTP client of the API backends: POST with JSON in and out; every failure becomes an error of `models.base`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kofn._version import __version__
from kofn.core.format import one_line
from kofn.errors import InputError
from kofn.models.base import RequestRejected, RetryableError
from kofn.models.http_errors import error_for_status, parse_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    from kofn.models.endpoint import Address

TIMEOUT = 600.0  # seconds for a whole reply, unless the backend is given another limit
CONNECT = 30.0
MOST_TOKENS = 10**9  # a server that reports more has wrapped below zero, and SQLite could not hold the sum
LARGEST = 256 << 20  # bytes of a reply


class Client:
    """The connection to one server. Redirects are not followed: they would take the key to another host."""

    def __init__(self, name: str, address: Address, headers: Mapping[str, str], timeout: float | None) -> None:
        self.name, self.address = name, address
        self.timeout = TIMEOUT if timeout is None else timeout
        login = {} if address.login is None else {"Authorization": f"Basic {address.login}"}
        self._headers = {"Content-Type": "application/json", "User-Agent": f"kofn/{__version__}", **headers, **login}
        self._urls: dict[str, URL] = {}
        self._sessions: dict[asyncio.AbstractEventLoop, ClientSession] = {}

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The parsed reply to a body. Raises RetryableError, RequestRejected or a KofnError."""
        import aiohttp
        import orjson

        try:
            data = orjson.dumps(body)
        except TypeError as problem:  # lone surrogates: no bytes can say them
            raise RequestRejected(f"the request is no JSON: {problem}") from None
        session = self._sessions.get(asyncio.get_running_loop()) or self._open()
        url = self._urls.get(path) or self._url(path)
        try:
            async with session.post(url, data=data, allow_redirects=False) as response:
                raw = self.address.without_secrets(await _whole_body(response))
        except TimeoutError:
            raise RetryableError(f"no whole reply within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise self._lost(problem) from None
        if not 200 <= response.status < 300:
            raise error_for_status(self.name, self.address, response.status, response.headers, raw, body)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            return self._parse_again(raw)

    def malformed(self, reply: Any) -> RetryableError:
        """For a reply that is JSON and not the expected one."""
        import json

        message = parse_error(json.dumps(reply).encode())[1]
        return RetryableError(f"a reply without an answer: {one_line(self.address.redacted(message))}")

    async def close(self) -> None:
        """Let the connections of this event loop go; a later call opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _parse_again(self, raw: bytes) -> Any:
        """JSON that is right but for halves of characters (an emoji cut at max_tokens), where retrying cannot help."""
        import json

        try:
            return json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            message = one_line(self.address.redacted(parse_error(raw)[1]))
            raise RetryableError(f"the reply is no JSON: {message}") from None

    def _lost(self, problem: Exception) -> Exception:
        import aiohttp

        message = one_line(self.address.redacted(str(problem))) or type(problem).__name__
        if isinstance(problem, aiohttp.ClientConnectorCertificateError):
            return InputError(f"{self.name}: {message}: set SSL_CERT_FILE to the certificates that this server needs")
        return RetryableError(f"{type(problem).__name__}: {message}")

    def _open(self) -> ClientSession:
        import aiohttp

        session = aiohttp.ClientSession(
            # no limit of its own, which would make calls wait unseen: the runner limits them
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=self.timeout, sock_connect=min(CONNECT, self.timeout)),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would tie one reply to the next
            proxy=proxy_of(self.address.base),
        )
        self._sessions[asyncio.get_running_loop()] = session
        return session

    def _url(self, path: str) -> URL:
        from yarl import URL

        self._urls[path] = URL(self.address.url(path))
        return self._urls[path]


async def _whole_body(response: ClientResponse) -> bytes:
    """What a server says, up to a size that no reply has: it could go on for ever."""
    if (response.content_length or 0) <= LARGEST:
        parts, left = [], LARGEST
        async for part in response.content.iter_any():
            parts.append(part)
            if (left := left - len(part)) < 0:
                break
        else:
            return b"".join(parts)
    raise RequestRejected(f"a reply of more than {LARGEST >> 20} MiB")


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for a URL, looked up once per session; never one for this machine itself.

    >>> proxy_of("http://127.0.0.1:8080/v1") is None
    True
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def replace_surrogates(text: str) -> str:
    """A text without lone surrogates, which no file can hold.

    >>> replace_surrogates("ok"), replace_surrogates("cut \\ud83d")
    ('ok', 'cut �')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def token_count(value: Any) -> int | None:
    """A number of tokens as a server gives it, or None where it is none, or more than any reply can have.

    >>> [token_count(n) for n in (7, -3, "many", None, True, 2**64 - 1)]
    [7, None, None, None, None, None]
    """
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS and not isinstance(value, bool) else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """An optional part of a reply; empty where it is no mapping, so that the reply is not lost for it."""
    return value if isinstance(value, dict) else {}


def checked_options(name: str, options: Mapping[str, Any] | None, own: frozenset[str]) -> dict[str, Any]:
    """Parameters that a user adds to every request; those that would change what a request is are refused."""
    for field in options or {}:
        if field in own:
            raise InputError(f"{name}: option {field!r} cannot be set: kofn sets it for every request")
    return dict(options or {})
