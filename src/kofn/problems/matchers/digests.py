"""Matcher of digests: compares the hash of a file or output with the one that the author stored."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError
from kofn.problems.matchers.base import RIGHT, BuiltinMatcher, decode_actual
from kofn.problems.matchers.diff_text import mismatch

if TYPE_CHECKING:
    from kofn.problems.matchers.base import Actual, Match

_DIGITS = {"sha256": 64, "md5": 32, "sha1": 40, "sha512": 128}
_HEX = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HashMatcher(BuiltinMatcher):
    """The bytes have the expected digest, in hex; or, where bytes are expected (a file), the same digest as those.

    `algorithm` is sha256, sha512, sha1 or md5.

    >>> HashMatcher(algorithm="md5")("900150983cd24fb0d6963f7d28e17f72", b"abc").correct
    True
    >>> print(HashMatcher(algorithm="md5")(b"abc", b"abcd").diff)
    expected md5 900150983cd24fb0d6963f7d28e17f72 (3 bytes)
    found    md5 e2fc714c4727ee9395f324cd2e7f331f (4 bytes)
    """

    name: ClassVar[str] = "hash"
    algorithm: str = "sha256"

    def __post_init__(self) -> None:
        BuiltinMatcher.__post_init__(self)
        if self.algorithm not in _DIGITS:
            known = ", ".join(_DIGITS)
            raise InputError(f"matcher hash: algorithm must be one of {known}, not {self.algorithm!r:.40}")

    def check_expected(self, expected: Any) -> None:
        """Bytes, or a digest of the right length."""
        self._parse_expected(expected)

    def __call__(self, expected: Any, actual: Actual) -> Match:
        content = actual if isinstance(actual, bytes) else decode_actual(actual).encode("utf-8", "surrogateescape")
        target, found = self._parse_expected(expected), self._digest(content)
        if target == found:
            return RIGHT
        size = f" ({len(expected):,} bytes)" if isinstance(expected, bytes) else ""
        return mismatch(
            f"expected {self.algorithm} {target}{size}", f"found    {self.algorithm} {found} ({len(content):,} bytes)"
        )

    def _parse_expected(self, expected: Any) -> str:
        if isinstance(expected, bytes):
            return self._digest(expected)
        digits = _DIGITS[self.algorithm]
        text = expected.strip().lower() if isinstance(expected, str) else ""
        if len(text) != digits or not _HEX.fullmatch(text):
            raise self.type_error(expected, f"a {self.algorithm} digest of {digits} hex digits")
        return text

    def _digest(self, content: bytes) -> str:
        return hashlib.new(self.algorithm, content, usedforsecurity=False).hexdigest()
