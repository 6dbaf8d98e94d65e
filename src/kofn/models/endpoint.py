"""The address of a model server, `MODEL` or `MODEL@BASE_URL`, and the API key that it gets from the environment.

A vendor's key goes to that vendor, and to the one base URL that the vendor's own variable names (OPENAI_BASE_URL,
ANTHROPIC_BASE_URL). Any other base URL gets KOFN_API_KEY if that is set, else no key: a key is never sent to a server
its owner did not mean it for.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN = re.compile(r"//[^/\s@]+@")
SHORTEST_SECRET = 4  # hiding every "1" of a message because a query says page=1 helps nobody
SHORTEST_HIDDEN = 8  # in what a model says, where "word" may be a word
SECRET_NAME = re.compile(r"key|token|secret|sig|pass|auth|cred", re.IGNORECASE)
LOGIN_WITHOUT_SCHEME = re.compile(r"@(?:\w+://)?[^@/\s]+:[^@/\s]+@([\w.-]+)")
HOST_WITHOUT_SCHEME = re.compile(r"@([\w.-]+:\d{1,5}(?:/\S*)?|localhost(?:/\S*)?)$")


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
            if secret in reply:
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
    environment = os.environ if environment is None else environment
    model, base_url = split_spec(spec)
    named = environment.get(vendor.base_variable, "").strip()
    base = base_url or named or vendor.base
    if not model:
        raise InputError(
            f"{vendor.prefix}: names no model: expected {vendor.prefix}:MODEL or {vendor.prefix}:MODEL@BASE_URL"
        )
    if base_url is None and (bare := LOGIN_WITHOUT_SCHEME.search(model)):
        raise InputError(f"{vendor.prefix}: a base URL begins with http:// or https://: ...@http://***@{bare[1]}")
    if base_url is None and (bare := HOST_WITHOUT_SCHEME.search(model)):
        raise InputError(f"{vendor.prefix}: write the base URL in full: ...@http://{bare[1]}")
    return _address(model, base, vendor, environment, theirs=_same(base, named))


def _address(model: str, base: str, vendor: Vendor, environment: Mapping[str, str], *, theirs: bool) -> Address:
    clean, display, login, secrets = _parts(base, vendor)
    official = clean.startswith(f"https://{urlsplit(vendor.base).hostname}/") or _same(clean, vendor.base)
    variable = vendor.key_variable if official or theirs else "KOFN_API_KEY"
    key = _key(variable, environment)
    if official and key is None:
        raise InputError(f"{vendor.prefix}:{model}: needs a key: set the environment variable {variable}")
    # `known` is redacted from messages; from replies only `sure`, which cannot be a word of an answer
    known = [form for s in (key, *secrets) if s and len(s) >= SHORTEST_SECRET for form in _forms(s)]
    sure = [key or "", *_certain(clean, login, secrets)]
    hidden = [form.encode() for s in sure if len(s) >= SHORTEST_HIDDEN for form in _forms(s)]
    return Address(
        model, clean, display, official, key, variable, login, tuple(dict.fromkeys(known)), tuple(dict.fromkeys(hidden))
    )


def _forms(secret: str) -> list[str]:
    """As it is, in a URL, and in base64, each also as JSON may write it; the longest first."""
    encoded = b64encode(secret.encode()).decode()
    plain = [secret, quote(secret, safe=""), encoded, encoded.rstrip("=")]
    return sorted({form for one in plain for form in (one, one.replace("/", "\\/"))}, key=len, reverse=True)


def _certain(base: str, login: str | None, secrets: list[str]) -> list[str]:
    """Of what a base URL holds, what nobody would say: the login, and values of the query that are named as secrets."""
    named = [part.partition("=")[::2] for part in urlsplit(base).query.split("&")]
    values = [value for name, value in named if SECRET_NAME.search(name)]
    return values if login is None else [*values, *secrets[-3:]]


def _parts(base: str, vendor: Vendor) -> tuple[str, str, str | None, list[str]]:
    """The URL without its login, the URL to show, the login for a header, and what must never be shown."""
    try:
        url = urlsplit(base)
        host = url.hostname if url.port is None else f"{url.hostname}:{url.port}"
    except ValueError:
        url, host = urlsplit(""), None
    if url.scheme not in ("http", "https") or not host or re.search(r"\s", base):
        raise InputError(
            f"{vendor.prefix}: {vendor.base_variable} or the part after @ is no URL: expected http://HOST/v1"
        )
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


def _key(variable: str, environment: Mapping[str, str]) -> str | None:
    key = environment.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"the environment variable {variable} holds characters that no key has: set it again")
    return key or None


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
