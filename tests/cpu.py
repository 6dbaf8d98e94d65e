"""What something costs in processor time, which does not depend on what else the machine does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def cpu_seconds(function: Callable[[], Any]) -> float:
    """Processor time of a call: of this process, and of the processes it started that have ended.

    >>> cpu_seconds(lambda: sum(range(10))) < 1
    True
    """
    before = os.times()
    function()
    return sum(os.times()[:4]) - sum(before[:4])
