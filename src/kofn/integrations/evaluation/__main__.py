"""`python -m kofn.integrations.evaluation`."""

from __future__ import annotations

import sys

from kofn.integrations.evaluation.command_line import main

if __name__ == "__main__":
    sys.exit(main())
