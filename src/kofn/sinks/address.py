"""Where a run is sent: `mlflow:URI`, `wandb:ENTITY/PROJECT`, with options of kofn's own behind a question mark."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kofn.errors import InputError, MissingExtra, UnknownName
from kofn.values import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

SENDERS = {"mlflow": "kofn.sinks.mlflow:send", "wandb": "kofn.sinks.wandb:send"}
PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}
ARTIFACTS = ("report", "all", "none")
_LONGEST = 300  # characters of what a package says
_OWN = ("artifacts", "experiment", "name")
# what a message must never show, should a package quote it
_SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY", "DATABRICKS_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One sink.

    place   of mlflow its tracking URI, of wandb ENTITY/PROJECT or PROJECT
    options artifacts (report, all, none), experiment (mlflow), name of the run there

    >>> Address.parse("mlflow:http://me:pw@host:5000?artifacts=all&experiment=nightly")
    Address(mlflow:http://host:5000)
    >>> Address.parse("wandb:team/answers").place
    'team/answers'
    """

    kind: str
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read KIND:PLACE?OPTIONS; without a place the one that the environment names."""
        kind, sign, rest = text.partition(":")
        if not sign or kind not in SENDERS:
            known = [f"{name}:" for name in SENDERS]
            raise UnknownName("sink", f"{kind}:" if sign else text, known, f"expected mlflow:URI or {known[1]}PROJECT")
        place, options = _without_own(rest)
        address = cls(kind=kind, place=place or _from_environment(kind), options=options)
        if (wanted := options.get("artifacts")) is not None and wanted not in ARTIFACTS:
            raise UnknownName("artifacts", wanted, list(ARTIFACTS))
        if kind == "wandb" and not 0 <= place.count("/") <= 1:
            raise InputError(f"sink {address}: expected wandb:PROJECT or wandb:ENTITY/PROJECT")
        return address

    def __str__(self) -> str:
        """As messages show it: without a password, and without what else the address of a server holds."""
        return f"{self.kind}:{redacted(self.place)}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def again(self) -> str:
        """What to write to send there another time."""
        own = "&".join(f"{quote(k)}={quote(v)}" for k, v in self.options.items())
        return f"{self}?{own}" if own else str(self)

    @property
    def artifacts(self) -> str:
        return self.options.get("artifacts", "report")

    def clean(self, text: str) -> str:
        """What a package says, in one line, without what must not be shown.

        >>> Address.parse("mlflow:http://me:pw@h").clean("no route to http://me:pw@h/api, tried pw")
        'no route to http://h/api, tried ***'
        """
        password = urlsplit(self.place).password if "://" in self.place else None
        text = without_user(" ".join(text.split()))
        for secret in filter(None, [password, unquote(password or ""), *map(os.environ.get, _SECRETS)]):
            text = text.replace(secret, "***")
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def check(self) -> None:
        """Refuse a sink whose package is not there, before any work is done."""
        from importlib.util import find_spec

        if find_spec(self.kind) is None:
            raise MissingExtra(PACKAGES[self.kind], self.kind, f"--sink {self.kind}:")

    def sender(self) -> Any:
        from importlib import import_module

        module, _, name = SENDERS[self.kind].partition(":")
        return getattr(import_module(module), name)


def without_user(text: str) -> str:
    """A text whose addresses name nobody and no password.

    >>> without_user("openai:m@https://me:pw@host/v1")
    'openai:m@https://host/v1'
    """
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _without_own(text: str) -> tuple[str, dict[str, str]]:
    """An address and our own options taken from its query; what else the query holds is the server's.

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
