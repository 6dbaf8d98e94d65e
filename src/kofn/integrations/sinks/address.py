"""The address of a tracker: `mlflow:URI`, `wandb:ENTITY/PROJECT`, with options of kofn's own behind a question mark."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kofn.core.addresses import redact_address
from kofn.errors import InputError, MissingExtra, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

SENDERS = {"mlflow": "kofn.integrations.sinks.mlflow:send", "wandb": "kofn.integrations.sinks.wandb:send"}
PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}
ARTIFACTS = ("report", "all", "none")
_LONGEST = 300  # characters of a package's error
_OWN = ("artifacts", "experiment", "name")
# secrets that a package may quote in its errors, and that a message must never show
_SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY", "DATABRICKS_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAddress:
    """The address of one sink.

    place    for mlflow its tracking URI, for wandb ENTITY/PROJECT or PROJECT
    options  artifacts (report, all, none), experiment (mlflow), name of the run there

    >>> SinkAddress.parse("mlflow:http://me:pw@host:5000?artifacts=all&experiment=nightly")
    Address(mlflow:http://host:5000)
    >>> SinkAddress.parse("wandb:team/answers").place
    'team/answers'
    """

    kind: str
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SinkAddress:
        """Parse KIND:PLACE?OPTIONS; without a place the one that the environment names."""
        kind, sign, rest = text.partition(":")
        if not sign or kind not in SENDERS:
            known = [f"{name}:" for name in SENDERS]
            raise UnknownName("sink", f"{kind}:" if sign else text, known, f"expected mlflow:URI or {known[1]}PROJECT")
        place, options = _without_own(rest)
        address = cls(kind=kind, place=place or _from_environment(kind), options=options)
        if (artifacts := options.get("artifacts")) is not None and artifacts not in ARTIFACTS:
            raise UnknownName("artifacts", artifacts, list(ARTIFACTS))
        if kind == "wandb" and not 0 <= place.count("/") <= 1:
            raise InputError(f"sink {address}: expected wandb:PROJECT or wandb:ENTITY/PROJECT")
        return address

    def __str__(self) -> str:
        """As messages show it: without passwords and queries."""
        return f"{self.kind}:{redact_address(self.place)}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def text(self) -> str:
        """The address to write on the command line; `parse` reads it back, but for passwords."""
        own = "&".join(f"{quote(k)}={quote(v)}" for k, v in self.options.items())
        return f"{self}?{own}" if own else str(self)

    @property
    def artifacts(self) -> str:
        return self.options.get("artifacts", "report")

    def clean(self, text: str) -> str:
        """A package's error in one line, without secrets.

        >>> SinkAddress.parse("mlflow:http://me:pw@h").clean("no route to http://me:pw@h/api, tried pw")
        'no route to http://h/api, tried ***'
        """
        password = urlsplit(self.place).password if "://" in self.place else None
        text = without_credentials(" ".join(text.split()))
        for secret in filter(None, [password, unquote(password or ""), *map(os.environ.get, _SECRETS)]):
            text = text.replace(secret, "***")
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def check(self) -> None:
        """Refuse a sink whose package is not installed, before any work is done."""
        if find_spec(self.kind) is None:
            raise MissingExtra(PACKAGES[self.kind], self.kind, f"--sink {self.kind}:")

    def sender(self) -> Any:
        """The function that sends a `TrackerRun` there."""
        module, _, name = SENDERS[self.kind].partition(":")
        return getattr(import_module(module), name)


def without_credentials(text: str) -> str:
    """A text without the user names and passwords of the addresses in it.

    >>> without_credentials("openai:m@https://me:pw@host/v1")
    'openai:m@https://host/v1'
    """
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _without_own(text: str) -> tuple[str, dict[str, str]]:
    """An address and kofn's own options, taken from its query; the rest of the query is the server's.

    >>> _without_own("postgresql://h/db?sslmode=require&artifacts=all")
    ('postgresql://h/db?sslmode=require', {'artifacts': 'all'})
    """
    place, _, query = text.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    others = "&".join(f"{quote(k)}={quote(v)}" for k, v in pairs if k not in _OWN)
    return f"{place}?{others}" if others else place, {k: v for k, v in pairs if k in _OWN}


def _from_environment(kind: str) -> str:
    name = {"mlflow": "MLFLOW_TRACKING_URI", "wandb": "WANDB_PROJECT"}[kind]
    if not (found := os.environ.get(name, "")):
        form = {"mlflow": "mlflow:http://HOST:PORT", "wandb": "wandb:PROJECT"}[kind]
        raise InputError(f"sink {kind}: says not where: write {form}, or set {name}")
    return found
