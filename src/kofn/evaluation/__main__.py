"""`python -m kofn.evaluation`."""

from __future__ import annotations

import sys

from kofn.evaluation.command import main

if __name__ == "__main__":
    sys.exit(main())
