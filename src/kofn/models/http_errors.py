"""Maps a failed HTTP response to an error: retry the call, give up the request, or stop the run."""

from __future__ import annotations

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from kofn.core.format import one_line
from kofn.errors import InputError, WorldError
from kofn.models.base import RequestRejected, RetryableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.models.endpoint import Address

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
