"""The HTTP client of the API backends: addresses and keys, JSON in and out, and failures as errors of `models.base`.

The address of a model server is `MODEL` or `MODEL@BASE_URL`. A vendor's key goes to that vendor, and to the one base
URL that the vendor's own variable names (OPENAI_BASE_URL, ANTHROPIC_BASE_URL). Any other base URL gets KOFN_API_KEY if
that is set, else no key: a key is never sent to a server its owner did not mean it for.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from base64 import b64encode
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from kofn._version import __version__
from kofn.core.escape import one_line
from kofn.errors import InputError, WorldError
from kofn.models.base import Model, RequestRejected, RetryableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    Options = Mapping[str, Any] | None

LOGIN = re.compile(r"//[^/\s@]+@")
SHORTEST_SECRET = 4  # hiding every "1" of a message because a query says page=1 helps nobody
SHORTEST_HIDDEN = 8  # in what a model says, where "word" may be a word
SECRET_NAME = re.compile(r"key|token|secret|sig|pass|auth|cred", re.IGNORECASE)
LOGIN_WITHOUT_SCHEME = re.compile(r"@(?:\w+://)?[^@/\s]+:[^@/\s]+@([\w.-]+)")
HOST_WITHOUT_SCHEME = re.compile(r"@([\w.-]+:\d{1,5}(?:/\S*)?|localhost(?:/\S*)?)$")
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

# --- addresses and keys


@dataclass(frozen=True, slots=True)
class Vendor:
    """A wire format and the company that it comes from."""

    prefix: str
    base: str
    key_variable: str
    base_variable: str


@dataclass(frozen=True, slots=True)
class Address:
    """A model on a server. `display` is the base URL as anybody may read it; the key and the login are in no repr."""

    model: str
    base: str
    display: str
    official: bool
    key: str | None = field(default=None, repr=False)
    key_variable: str = ""
    login: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    hidden: tuple[bytes, ...] = field(default=(), repr=False)

    def url(self, path: str) -> str:
        """The address of one endpoint; a query that the base URL has stays at its end."""
        before, mark, query = self.base.partition("?")
        return f"{before.rstrip('/')}{path}{mark}{query}"

    def redacted(self, text: str) -> str:
        """The text without keys and passwords."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return LOGIN.sub("//***@", text)  # a proxy's, too

    def without_secrets(self, reply: bytes) -> bytes:
        """A reply without the key that it was asked with, and without a password: some servers and proxies repeat them.

        What could be a word of an answer is left: only what is long, and secret by its place, is taken out.
        """
        for secret in self.hidden:
            reply = reply.replace(secret, b"***")
        return reply


def split_spec(spec: str) -> tuple[str, str | None]:
    """Model and base URL. The name of a model may hold "@", "/" and ":" itself.

    >>> split_spec("gpt-x")
    ('gpt-x', None)
    >>> split_spec("org/name@v2:latest@http://127.0.0.1:8080/v1")
    ('org/name@v2:latest', 'http://127.0.0.1:8080/v1')
    """
    at = max(spec.rfind("@http://"), spec.rfind("@https://"))
    return (spec, None) if at < 0 else (spec[:at], spec[at + 1 :])


def find_address(spec: str, vendor: Vendor, environment: Mapping[str, str] | None = None) -> Address:
    """Read what follows `openai:` or `anthropic:`. A key that is needed and not there is an error before any call.

    >>> openai = Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    >>> find_address("m@http://me:word@host/v1?token=1", openai, {"OPENAI_API_KEY": "k"})
    Address(model='m', base='http://host/v1?token=1', display='http://***@host/v1?***', official=False,
            key_variable='KOFN_API_KEY')
    """
    environment, prefix = os.environ if environment is None else environment, vendor.prefix
    model, base_url = split_spec(spec)
    named = environment.get(vendor.base_variable, "").strip()
    base = base_url or named or vendor.base
    if not model:
        raise InputError(f"{prefix}: names no model: expected {prefix}:MODEL or {prefix}:MODEL@BASE_URL")
    if base_url is None and (bare := LOGIN_WITHOUT_SCHEME.search(model)):
        raise InputError(f"{prefix}: a base URL begins with http:// or https://: ...@http://***@{bare[1]}")
    if base_url is None and (bare := HOST_WITHOUT_SCHEME.search(model)):
        raise InputError(f"{prefix}: write the base URL in full: ...@http://{bare[1]}")
    clean, display, login, secrets = _parts(base, vendor)
    official = clean.startswith(f"https://{urlsplit(vendor.base).hostname}/") or _same(clean, vendor.base)
    variable = vendor.key_variable if official or _same(base, named) else "KOFN_API_KEY"
    key = environment.get(variable, "").strip() or None
    if key and not (key.isascii() and key.isprintable()):
        raise InputError(f"the environment variable {variable} holds characters that no key has: set it again")
    if official and key is None:
        raise InputError(f"{vendor.prefix}:{model}: needs a key: set the environment variable {variable}")
    # `known` is redacted from messages; from replies only `sure`, which cannot be a word of an answer: the key, the
    # login, and values of the query that are named as secrets
    known = [form for s in (key, *secrets) if s and len(s) >= SHORTEST_SECRET for form in _forms(s)]
    query = [part.partition("=")[::2] for part in urlsplit(clean).query.split("&")]
    sure = [key or "", *(value for name, value in query if SECRET_NAME.search(name))]
    sure += [] if login is None else secrets[-3:]
    hidden = [form.encode() for s in sure if len(s) >= SHORTEST_HIDDEN for form in _forms(s)]
    return Address(
        model, clean, display, official, key, variable, login, tuple(dict.fromkeys(known)), tuple(dict.fromkeys(hidden))
    )


def _forms(secret: str) -> list[str]:
    """As it is, in a URL, and in base64, each also as JSON may write it; the longest first."""
    encoded = b64encode(secret.encode()).decode()
    plain = [secret, quote(secret, safe=""), encoded, encoded.rstrip("=")]
    return sorted({form for one in plain for form in (one, one.replace("/", "\\/"))}, key=len, reverse=True)


def _parts(base: str, vendor: Vendor) -> tuple[str, str, str | None, list[str]]:
    """The URL without its login, the URL to show, the login for a header, and what must never be shown."""
    try:
        url = urlsplit(base)
        host = url.hostname if url.port is None else f"{url.hostname}:{url.port}"
    except ValueError:
        url, host = urlsplit(""), None
    if url.scheme not in ("http", "https") or not host or re.search(r"\s", base):
        place = f"{vendor.base_variable} or the part after @"
        raise InputError(f"{vendor.prefix}: {place} is no URL: expected http://HOST/v1")
    host = host if url.hostname is None or ":" not in url.hostname else f"[{url.hostname}]" + host[len(url.hostname) :]
    query = f"?{url.query}" if url.query else ""
    login, secrets = None, [part.partition("=")[2] for part in url.query.split("&")]
    if "@" in url.netloc:
        user, _, word = url.netloc.rpartition("@")[0].partition(":")
        login = b64encode(f"{unquote(user)}:{unquote(word)}".encode()).decode()
        secrets += [login, word or user, unquote(word or user)]
    clean = f"{url.scheme}://{host}{url.path}"
    display = f"{url.scheme}://{'***@' if login else ''}{host}{url.path}{'?***' if query else ''}"
    return clean + query, display.rstrip("/"), login, secrets


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


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
        advice = f"check the name of the model and the base URL {address.display}"
        if status == 404 and "/v1" not in address.base:
            advice = f"is {address.display} the base URL? Most servers' ends in /v1"
        return InputError(f"{name}: {text}: {advice}")
    # "n" and what every request has are also plain words
    named = (field for field in fields if field not in PLAIN_WORDS and re.search(rf"\b{re.escape(field)}\b", low))
    if status in (400, 422) and REFUSES_FIELD.search(message) and any(named):
        return InputError(f"{name}: {text}: this server refuses a parameter: leave it out")
    return RequestRejected(text)


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
    if (seconds := _number(value)) is not None or (then := _moment(value)) is None:
        return seconds
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
        from yarl import URL

        try:
            data = orjson.dumps(body)
        except TypeError as problem:  # lone surrogates: no bytes can say them
            raise RequestRejected(f"the request is no JSON: {problem}") from None
        session = self._sessions.get(asyncio.get_running_loop()) or self._open()
        url = self._urls.get(path) or self._urls.setdefault(path, URL(self.address.url(path)))
        try:
            async with session.post(url, data=data, allow_redirects=False) as response:
                raw = self.address.without_secrets(await _whole_body(response))
        except TimeoutError:
            raise RetryableError(f"no whole reply within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as problem:
            message = one_line(self.address.redacted(str(problem))) or type(problem).__name__
            if isinstance(problem, aiohttp.ClientConnectorCertificateError):
                advice = "set SSL_CERT_FILE to the certificates that this server needs"
                raise InputError(f"{self.name}: {message}: {advice}") from None
            if isinstance(problem, aiohttp.ClientConnectorError):
                why = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else problem.strerror
                where = f"cannot connect to {problem.host}:{problem.port}"
                raise RetryableError(one_line(f"{where} ({why})"), unreachable=True) from None
            raise RetryableError(f"{type(problem).__name__}: {message}") from None
        if not 200 <= response.status < 300:
            raise error_for_status(self.name, self.address, response.status, response.headers, raw, body)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
        try:  # JSON that is right but for halves of characters (an emoji cut at max_tokens): retrying cannot help
            return json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            message = one_line(self.address.redacted(parse_error(raw)[1]))
            raise RetryableError(f"the reply is no JSON: {message}") from None

    def malformed(self, reply: Any) -> RetryableError:
        """For a reply that is JSON and not the expected one."""
        message = parse_error(json.dumps(reply).encode())[1]
        return RetryableError(f"a reply without an answer: {one_line(self.address.redacted(message))}")

    async def close(self) -> None:
        """Let the connections of this event loop go; a later call opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

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
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
        """A body with the user's options on top; what is None is not sent at all."""
        return {k: v for k, v in (body | self.options).items() if v is not None}
