"""Where work folders are while programs run."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kofn.checkpoint.folder import remove

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "kofn-verify-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for work folders, gone at the end; those of processes that were killed go too."""
    _sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        yield folder
    finally:
        remove(Path(folder))


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not _exists(int(pid)):
            remove(left)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
