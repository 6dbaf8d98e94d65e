"""Removes passwords and signatures from addresses before they are shown or stored."""

from __future__ import annotations


def redact_address(address: str) -> str:
    """An address without a password and without its query, which may hold a signature.

    >>> redact_address("https://me:secret@host/a.jsonl?token=1"), redact_address("runs/a.jsonl")
    ('https://host/a.jsonl', 'runs/a.jsonl')
    """
    scheme, sign, rest = address.partition("://")
    if not sign:
        return address
    # the query may hold a signature, which is as good as a password
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"  # the last @: a password may contain one
