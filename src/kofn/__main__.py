"""`python -m kofn`."""

from kofn.cli import main

main()
