"""The HTTP client of the API backends: POST with JSON in and out; every failure becomes an error of `models.base`."""

from __future__ import annotations

import asyncio
import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar

from kofn._version import __version__
from kofn.core.escape import one_line
from kofn.errors import InputError, WorldError
from kofn.models.base import Model, RequestRejected, RetryableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    from kofn.models.endpoint import Address, Vendor

    Options = Mapping[str, Any] | None

MOST_READ = 1 << 16  # far more than a message shows: a cut could leave half of a key, which redaction would miss
AGAIN = frozenset({408, 409, 421, 425, 429})  # and every 5xx
PLAIN_WORDS = frozenset({"n", "stop", "model", "prompt", "messages", "system"})
# Redirects are never followed (the key would go along), so they mean a wrong base URL, as 404 does.
NOWHERE = frozenset({301, 302, 303, 307, 308, 404, 405, 410})
NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
# Codes of a 400 that every further request would get too.
NEVER = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "model_not_found"})
REFUSES_FIELD = re.compile(
    r"not support|unsupported|cannot both be specified|deprecated for|unrecognized|unknown|not permitted", re.IGNORECASE
)
TIMEOUT = 600.0  # seconds for a whole reply, unless the backend is given another limit
CONNECT = 30.0
MOST_TOKENS = 10**9  # a server that reports more has wrapped below zero, and SQLite could not hold the sum
LARGEST = 256 << 20  # bytes of a reply

# --- failed responses: retry the call, give up the request, or stop the run


def error_for_status(
    name: str, address: Address, status: int, headers: Mapping[str, str], raw: bytes, fields: Mapping[str, Any]
) -> Exception:
    """The exception for a status that is no success, with what the server said: one line, no secret.

    `fields` is what was sent: a server that refuses one of them by name will refuse every request.
    """
    codes, message = parse_error(raw)
    text = f"status {status}: {one_line(address.redacted(message))}".rstrip(": ")
    low = message.lower()
    if status == 402 or codes & NO_MONEY or (status == 400 and "credit balance is too low" in low):
        return WorldError(f"{name}: {text}")
    if status in AGAIN or status >= 500:
        return RetryableError(text, retry_after(headers), busy=status in (429, 529))
    if status in (401, 407) or (status == 403 and "flagged" not in low):
        return InputError(f"{name}: {text}: check the environment variable {address.key_variable}")
    if status in NOWHERE or codes & NEVER:
        return InputError(f"{name}: {text}: {_advice(address, status)}")
    if status in (400, 422) and REFUSES_FIELD.search(message) and _names_one(low, fields):
        return InputError(f"{name}: {text}: this server refuses a parameter: leave it out")
    return RequestRejected(text)


def _names_one(message: str, fields: Mapping[str, Any]) -> bool:
    """Whether a message names one of these parameters; "n" and what every request has are also plain words."""
    return any(re.search(rf"\b{re.escape(field)}\b", message) for field in fields if field not in PLAIN_WORDS)


def _advice(address: Address, status: int) -> str:
    if status == 404 and "/v1" not in address.base:
        return f"is {address.display} the base URL? Most servers' ends in /v1"
    return f"check the name of the model and the base URL {address.display}"


def parse_error(raw: bytes) -> tuple[frozenset[str], str]:
    """Codes and message of an error's body, in whichever of the usual places.

    >>> parse_error(b'{"error": {"message": "No.", "type": "t", "code": 404}}') == (frozenset({"t", "404"}), "No.")
    True
    >>> parse_error(b"<html>Bad gateway</html>")
    (frozenset(), '<html>Bad gateway</html>')
    """
    import orjson

    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return frozenset(), raw[:MOST_READ].decode("utf-8", "replace")
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return frozenset(), str(error)
    codes = frozenset(str(error[key]) for key in ("type", "code") if error.get(key) is not None)
    message = next((error[key] for key in ("message", "detail", "error") if error.get(key)), error)
    return codes, message if isinstance(message, str) else orjson.dumps(message).decode()


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds a server asks to wait: `retry-after-ms`, or Retry-After in seconds or as a date.

    A date is of the server's clock, which its header Date tells; ours may be hours away from it.

    >>> retry_after({"Retry-After": "7"}), retry_after({"retry-after-ms": "30", "Retry-After": "1"}), retry_after({})
    (7.0, 0.03, None)
    >>> retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=0.0)
    60.0
    >>> headers = {"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT", "Date": "Thu, 01 Jan 1970 00:00:57 GMT"}
    >>> retry_after(headers, now=-7200.0)
    3.0
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After")
    if value is None or (seconds := _number(value)) is not None:
        return None if value is None else seconds
    if (then := _moment(value)) is None:
        return None
    theirs = _moment(headers.get("Date"))
    return max(0.0, then - (theirs if theirs is not None else time.time() if now is None else now))


def _moment(text: str | None) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


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


class ServerModel(Model):
    """A model on a server. `own` are the parameters that kofn sets for every request: options cannot change them."""

    own: ClassVar[frozenset[str]]
    chat = True

    def __init__(
        self, vendor: Vendor, address: Address, headers: Mapping[str, str], timeout: float | None, options: Options
    ) -> None:
        self.model, self.official, self.base_url = address.model, address.official, address.display
        self.name = f"{vendor.prefix}:{self.model}" + ("" if self.official else f"@{self.base_url}")
        self.options = dict(options or {})
        if refused := next((name for name in self.options if name in self.own), None):
            raise InputError(f"{self.name}: option {refused!r} cannot be set: kofn sets it for every request")
        self._client = Client(self.name, address, headers, timeout)

    def describe(self) -> dict[str, Any]:
        """Name, base URL and options; no key."""
        return {"name": self.name, "base_url": self.base_url, "options": self.options}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _with_options(self, body: dict[str, Any]) -> dict[str, Any]:
        """A body with the user's options on top; one that is None is not sent at all."""
        return {k: v for k, v in (body | self.options).items() if v is not None} if self.options else body
