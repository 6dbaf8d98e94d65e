"""What all pages share: the folder, the list of its runs, caches of what was read, and threads to make pages in."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from kofn.errors import KofnError
from kofn.viewer.caches import RunCache
from kofn.viewer.compare_data import ComparisonCache
from kofn.viewer.event_streams import EventStreams
from kofn.viewer.run_folder import NotFound, RunFolder
from kofn.viewer.run_list import RecentLines, RunList
from kofn.viewer.templating import error_page
from kofn.viewer.trend_page import TrendCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.responses import Response

THREADS = 4  # pages that are made at once; more only take turns on a small machine


class Viewer:
    """The state of one viewer, which every page is given."""

    def __init__(self, root: Path, streams: EventStreams | None = None) -> None:
        self.folder = RunFolder(root)
        self.run_list = RunList(self.folder)
        self.recent = RecentLines(self.run_list)
        self.runs = RunCache(self.folder)
        self.comparisons = ComparisonCache(self.folder, self.runs)
        self.trends = TrendCache(self.folder)
        self.streams = streams or EventStreams()
        self.limiter = anyio.CapacityLimiter(THREADS)

    async def respond(self, page: Callable[..., Response], *args: Any) -> Response:
        """The response of a page function, run in a thread; or a page that says what is wrong."""
        return await anyio.to_thread.run_sync(partial(_respond, page, *args), limiter=self.limiter)


def _respond(page: Callable[..., Response], *args: Any) -> Response:
    try:
        return page(*args)
    except NotFound as problem:
        return error_page(404, "Not here", str(problem))
    except KofnError as problem:
        return error_page(422, "This cannot be shown", str(problem))
    except OSError as problem:
        return error_page(503, "This cannot be read now", f"{problem.filename or 'a file'}: {problem.strerror}")
    except Exception as problem:  # a bug, or files that no test has: the viewer goes on
        return _unexpected(problem)


def _unexpected(problem: Exception) -> Response:
    """The page for an unforeseen error, whose traceback goes to the terminal."""
    # stamps were compared before, so what polars cannot parse was changed while it was read
    if type(problem).__module__.startswith("polars"):
        return error_page(503, "This cannot be read now", "A file changed while it was read: reload the page.")
    logging.getLogger("kofn.viewer").exception("a page could not be made")
    reason = "The terminal of kofn view says what went wrong; the other pages are not affected."
    return error_page(500, "This page could not be made", reason)
