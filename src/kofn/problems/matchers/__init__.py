"""Matchers: whether what a program did is what its author expected, and if not, a diff for people.

    matcher("json", {"tolerance": 0.01})({"pi": 3.14}, b'{"pi": 3.1416}')    # Match(correct=True, diff='')

Expected values are the author's: a wrong one is an `InputError`. Actual values come from programs that nobody trusts:
whatever they are, a matcher answers, in bounded time and memory. A family is loaded when one of its names is asked
for, and none loads more than the standard library (schema: and jsonschema).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kofn.errors import UnknownName
from kofn.problems.matchers.base import Match, Matcher, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MATCHERS", "Match", "Matcher", "default_matcher", "matcher", "text_of"]

MATCHERS = {
    "exact": "kofn.problems.matchers.plain_text:ExactMatcher",
    "stripped": "kofn.problems.matchers.plain_text:StrippedMatcher",
    "lines": "kofn.problems.matchers.plain_text:LinesMatcher",
    "contains": "kofn.problems.matchers.plain_text:ContainsMatcher",
    "regex": "kofn.problems.matchers.patterns:RegexMatcher",
    "number": "kofn.problems.matchers.number_text:NumberMatcher",
    "json": "kofn.problems.matchers.json_data:JsonMatcher",
    "schema": "kofn.problems.matchers.json_schema:SchemaMatcher",
    "table": "kofn.problems.matchers.csv_tables:TableMatcher",
    "csv": "kofn.problems.matchers.csv_tables:TableMatcher",
    "hash": "kofn.problems.matchers.digests:HashMatcher",
}


def matcher(name: str, params: Mapping[str, Any] | None = None) -> Matcher:
    """The matcher of this name, made with these parameters; a name with ":" or "." is a function of the author's.

    That function is imported when first used, from wherever `sys.path` leads.

    >>> matcher("stripped", {"ignore_case": True})("Yes", b"yes  \\n")
    Match(correct=True, diff='')
    >>> matcher("striped")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown matcher 'striped': did you mean stripped?
    >>> matcher("stripped", {"case": False})
    Traceback (most recent call last):
    kofn.errors.InputError: matcher stripped has no parameter 'case': it takes ignore_case, collapse
    """
    settings = dict(params or {})
    if name in MATCHERS:
        module, _, attribute = MATCHERS[name].partition(":")
        built_in: Matcher = getattr(import_module(module), attribute).create(settings)
        return built_in
    if ":" in name or "." in name:
        from kofn.problems.matchers.custom import CustomMatcher

        return CustomMatcher(function=name, params=settings)
    hint = f"known: {', '.join(MATCHERS)}; a function of your own is my_module:function"
    raise UnknownName("matcher", name, list(MATCHERS), hint)


def default_matcher(attribute: str, expected: object) -> str:
    """The matcher where the author names none: by what is expected, and for numbers and headers by where.

    >>> default_matcher("stdout", "hello"), default_matcher("stdout", {"a": 1}), default_matcher("stdout", 3.5)
    ('stripped', 'json', 'number')
    >>> default_matcher("status_code", 0), default_matcher("headers/content-type", "text/html")
    ('exact', 'exact')
    """
    if isinstance(expected, (dict, list, bool)):
        return "json"
    if isinstance(expected, (int, float)):
        return "exact" if attribute == "status_code" else "number"
    if isinstance(expected, str) and attribute.startswith("headers/"):
        return "exact"
    return "stripped"
