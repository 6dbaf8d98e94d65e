"""Turns counts and estimates into decisions: pass policies and requirements on numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from numbers import Integral
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from kofn.core.types import Decision
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.core.types import Estimate


class GroupType(StrEnum):
    """What a group of cases is for. An Error group tests error handling: it counts like any other."""

    CORE = "Core"
    FUNCTIONALITY = "Functionality"
    REGRESSION = "Regression"
    ERROR = "Error"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        raise UnknownName("group type", str(value), [], f"expected one of {', '.join(cls)}")


class PassPolicy(StrEnum):
    """When a checkpoint passes. A policy over no cases is never met; `core-cases` and `all-core-cases` are one.

    >>> PassPolicy("core-cases").check({"Core": 2}, {"Core": 2, "Error": 1})
    True
    >>> PassPolicy("all-cases").explain({"Core": 2}, {"Core": 2, "Error": 1})
    'all-cases: 2 of 3 cases pass (Error 0 of 1)'
    >>> PassPolicy("core-cases").explain({"Error": 1}, {"Error": 1})
    'core-cases: no core cases'
    """

    ANY = "any"
    ANY_CASE = "any-case"
    ALL_CASES = "all-cases"
    ALL_NON_ERROR_CASES = "all-non-error-cases"
    CORE_CASES = "core-cases"
    ANY_CORE_CASES = "any-core-cases"
    ALL_CORE_CASES = "all-core-cases"

    @classmethod
    def _missing_(cls, value: object) -> PassPolicy:
        raise UnknownName("policy", str(value), [], f"expected one of {', '.join(cls)}")

    @property
    def types(self) -> tuple[GroupType, ...]:
        """The types whose cases the policy looks at."""
        if self in (PassPolicy.CORE_CASES, PassPolicy.ANY_CORE_CASES, PassPolicy.ALL_CORE_CASES):
            return (GroupType.CORE,)
        if self is PassPolicy.ALL_NON_ERROR_CASES:
            return tuple(t for t in GroupType if t is not GroupType.ERROR)
        return tuple(GroupType)

    @property
    def needs_all(self) -> bool:
        """Whether every case it looks at must pass, or one is enough."""
        return self not in (PassPolicy.ANY, PassPolicy.ANY_CASE, PassPolicy.ANY_CORE_CASES)

    @property
    def noun(self) -> str:
        """What its cases are called."""
        # by how many of the four types it looks at
        return {1: "core cases", 3: "non-error cases"}.get(len(self.types), "cases")

    def check(self, pass_counts: Mapping[Any, int], total_counts: Mapping[Any, int]) -> bool:
        """Whether these counts (by group type) meet the policy; false where there is no case to look at."""
        return self.decide(pass_counts, total_counts).passed

    def explain(
        self,
        pass_counts: Mapping[Any, int],
        total_counts: Mapping[Any, int],
        infrastructure_failure: str | None = None,
    ) -> str:
        """Why the policy is met or not, in one line."""
        return self.decide(pass_counts, total_counts, infrastructure_failure).reason

    def decide(
        self,
        pass_counts: Mapping[Any, int],
        total_counts: Mapping[Any, int],
        infrastructure_failure: str | None = None,
    ) -> Decision:
        """The decision and its reason. A failure of the harness fails every policy."""
        passes, totals = _check_counts(pass_counts), _check_counts(total_counts)
        for kind, n in passes.items():
            if n > totals.get(kind, 0):
                raise InputError(f"{kind}: {n} cases pass of {totals.get(kind, 0)}")
        # what a broken harness counted says nothing of the system
        if infrastructure_failure is not None:
            return self._decision(False, f"the harness failed: {infrastructure_failure}")
        passed = sum(passes.get(t, 0) for t in self.types)
        total = sum(totals.get(t, 0) for t in self.types)
        if not total:
            return self._decision(False, f"no {self.noun}")
        met = passed == total if self.needs_all else passed > 0
        short = [(t, passes.get(t, 0), totals[t]) for t in self.types if passes.get(t, 0) < totals.get(t, 0)]
        where = ", ".join(f"{t} {p} of {n}" for t, p, n in short)
        detail = f" ({where})" if where and len(self.types) > 1 else ""
        return self._decision(met, f"{passed:,} of {total:,} {self.noun} pass{detail}")

    def _decision(self, passed: bool, reason: str) -> Decision:
        return Decision(passed=passed, policy=self.value, reason=f"{self.value}: {reason}")


def _check_counts(given: Mapping[Any, Any]) -> dict[GroupType, int]:
    counts: dict[GroupType, Any] = {GroupType(kind): n for kind, n in given.items()}
    for kind, n in counts.items():
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise InputError(f"{kind}: a count of cases is a whole number of 0 or more, not {n!r}")
    return counts


_OPERATORS = {">=": ge, "<=": le, ">": gt, "<": lt}
_PARTS = ("point", "low", "high")
# the name is anything up to the operator: aggregators have parentheses, quotes and dots
_REQUIREMENT = re.compile(r"^\s*(?P<name>.+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<bound>[-+.\deE]+)\s*(?P<percent>%?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A bound on an estimate's point or on an end of its interval.

    >>> Requirement.parse("any_pass.low >= 75%")
    Requirement(name='any_pass', part='low', operator='>=', bound=0.75)
    >>> str(Requirement.parse("ndcg(k=3) >= 0.5"))
    'ndcg(k=3) >= 0.5'
    """

    name: str
    part: str = "point"
    operator: str = ">="
    bound: float

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read `NAME[.low|.high] OP NUMBER[%]`; OP is >=, >, <= or <."""
        found = _REQUIREMENT.match(text)
        name, part = ("", "point") if found is None else _name_and_part(found["name"])
        if found is None or not name:
            raise InputError(f"requirement {text!r}: expected such as 'any_pass >= 0.8' or 'any_pass.low >= 75%'")
        try:
            bound = float(found["bound"])
        except ValueError:
            raise InputError(f"requirement {text!r}: {found['bound']!r} is not a number") from None
        if not isfinite(bound):
            raise InputError(f"requirement {text!r}: a bound is a finite number")
        return cls(name=name, part=part, operator=found["operator"], bound=bound / 100 if found["percent"] else bound)

    @classmethod
    def of_verdict(cls, text: str) -> Requirement:
        """The rule of a stored verdict; of one that names a rule a metric, the first.

        >>> str(Requirement.of_verdict("mean >= 1 under numeric; mean <= 0 under refused"))
        'mean >= 1'
        """
        return cls.parse(text.partition("; ")[0].partition(" under ")[0])

    def __str__(self) -> str:
        part = "" if self.part == "point" else f".{self.part}"
        return f"{self.name}{part} {self.operator} {self.bound:.12g}"

    @property
    def wants_high(self) -> bool:
        """Whether more is better, as far as the requirement says."""
        return self.operator in (">=", ">")

    def met_by(self, value: float) -> bool:
        """Whether a number meets the bound. One that is off by rounding alone is the bound itself.

        >>> Requirement.parse("mean > 0.3").met_by(0.1 + 0.2), Requirement.parse("mean <= 0.3").met_by(0.1 + 0.2)
        (False, True)
        """
        slack = 1e-12 * max(1.0, abs(self.bound))  # 0.1 + 0.2 >= 0.3 holds in decimals, which is how bounds are written
        # towards the bound: a value within rounding of it counts as equal, which meets >= and <= and fails > and <
        generous = slack if self.operator in (">=", "<") else -slack
        return bool(_OPERATORS[self.operator](value + generous, self.bound))

    def decide(self, estimate: Estimate) -> Decision:
        """The decision on an estimate; an undefined number meets no bound."""
        value: float | None = getattr(estimate, self.part)
        where = f" in {estimate.segment}" if estimate.segment is not None else ""
        met = value is not None and self.met_by(value)
        return Decision(passed=met, policy=str(self), reason=f"{self}{where}: {self.describe(estimate)}")

    def describe(self, estimate: Estimate) -> str:
        """The numbers of an estimate in one line, with the digits it takes to see on which side of the bound they are.

        >>> from kofn.core.types import Estimate
        >>> e = Estimate(aggregator="mean", point=.79996, low=.7, high=.9, level=.95, n=50, n_missing=2, method="bca")
        >>> Requirement.parse("mean >= 0.8").describe(e)
        '0.79996 [0.70000, 0.90000], 50 cases, 2 missing'
        """
        if estimate.point is None:
            return f"undefined: {'no cases' if not estimate.n_missing else f'{estimate.n_missing:,} missing, no other'}"
        value: float | None = getattr(estimate, self.part)
        digits = 3 if value is None else self.digits(value)
        text = f"{estimate.point:.{digits}f}"
        if estimate.low is not None and estimate.high is not None:
            text += f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
        elif value is None:
            text += " without an interval"
        missing = f", {estimate.n_missing:,} missing" if estimate.n_missing else ""
        return f"{text}, {estimate.n:,} {'case' if estimate.n == 1 else 'cases'}{missing}"

    def digits(self, value: float) -> int:
        """The decimals it takes to see on which side of the bound a number is, at least 3."""
        met = self.met_by(value)
        return next((d for d in range(3, 13) if self.met_by(round(value, d)) == met), 13)


def _name_and_part(text: str) -> tuple[str, str]:
    """A name and which number of its estimate.

    >>> _name_and_part("any_pass.low"), _name_and_part("weighted_mean(weights=(.5, 1.))")
    (('any_pass', 'low'), ('weighted_mean(weights=(.5, 1.))', 'point'))
    """
    name, _, part = text.rpartition(".")
    return (name.strip(), part) if part in _PARTS else (text, "point")
