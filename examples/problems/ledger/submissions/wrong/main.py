"""A ledger that loses the cents: every amount is cut to a whole number."""

import csv
import os
import sys
from pathlib import Path


def read_entries(name):
    lines = sys.stdin.read() if name == "-" else Path(name).read_text()
    return [(row["account"], int(float(row["amount"]))) for row in csv.DictReader(lines.splitlines())]


if __name__ == "__main__":
    command, name, *_ = sys.argv[1:]
    entries = read_entries(name)
    for account in sorted({account for account, _ in entries}):
        print(account, sum(amount for other, amount in entries if other == account))
    print("total", sum(amount for _, amount in entries), os.environ["LEDGER_CURRENCY"])
