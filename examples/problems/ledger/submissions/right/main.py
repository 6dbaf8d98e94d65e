"""A command-line ledger: balances, accounts, export, journal, budgets, months."""

import argparse
import csv
import json
import os
import sys
from collections import defaultdict
from decimal import Decimal, InvalidOperation
from pathlib import Path

FIELDS = ["date", "account", "amount", "note"]


class LedgerError(Exception):
    """Something is wrong with what was given."""


def known_accounts():
    return set(Path("accounts.txt").read_text().split())


def read_text(name):
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text()
    except FileNotFoundError:
        raise LedgerError(f"{name}: no such file") from None


def parse_amount(text, where):
    try:
        return Decimal(text)
    except InvalidOperation:
        raise LedgerError(f"{where}amount {text!r} is not a number") from None


def check_account(name, where):
    if name not in known_accounts():
        raise LedgerError(f"{where}unknown account {name!r}")


def read_entries(name):
    rows = csv.DictReader(read_text(name).splitlines())
    entries = []
    for row in rows:
        where = f"{name}: line {rows.line_num}: "
        check_account(row["account"], where)
        entries.append({**row, "amount": parse_amount(row["amount"], where)})
    return entries


def sums(entries, key):
    found = defaultdict(Decimal)
    for entry in entries:
        found[key(entry)] += entry["amount"]
    return dict(sorted(found.items()))


def balance(options):
    entries = read_entries(options.file)
    accounts = sums(entries, lambda e: e["account"])
    total = sum(accounts.values(), Decimal())
    if options.json:
        plain = {name: float(value) for name, value in accounts.items()}
        print(json.dumps({"accounts": plain, "total": float(total), "entries": len(entries)}))
    elif options.total:
        print(total)
    else:
        for name, value in accounts.items():
            print(f"{name} {value:.2f}")
        print(f"total {total:.2f} {os.environ['LEDGER_CURRENCY']}")
    return 0


def accounts(options):
    for name in sorted({entry["account"] for entry in read_entries(options.file)}):
        print(name)
    return 0


def export(options):
    entries = [{**entry, "amount": float(entry["amount"])} for entry in read_entries(options.file)]
    Path(options.out).write_text(json.dumps(entries, indent=2) + "\n")
    print(f"wrote {len(entries)} entries")
    return 0


def add(options):
    check_account(options.account, "")
    amount = parse_amount(options.amount, "")
    path = Path(options.file)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(FIELDS)
        writer.writerow([options.date, options.account, f"{amount:.2f}", options.note])
    print(f"added {len(read_entries(options.file))}")
    return 0


def budget(options):
    try:
        limits = json.loads(read_text(options.limits))
    except json.JSONDecodeError:
        raise LedgerError(f"{options.limits}: not JSON") from None
    spent = sums((e for e in read_entries(options.file) if e["amount"] < 0), lambda e: e["account"])
    rows = []
    for name, limit in sorted(limits.items()):
        used = float(-spent.get(name, Decimal()))
        rows.append({"account": name, "limit": limit, "spent": used, "over": used > limit})
    print(json.dumps(rows))
    return 3 if options.strict and any(row["over"] for row in rows) else 0


def months(options):
    entries = read_entries(options.file)
    print("month,in,out,net")
    for month, net in sums(entries, lambda e: e["date"][:7]).items():
        income = sum((e["amount"] for e in entries if e["date"][:7] == month and e["amount"] > 0), Decimal())
        print(f"{month},{income:.2f},{net - income:.2f},{net:.2f}")
    return 0


def parser():
    main = argparse.ArgumentParser(prog="ledger")
    commands = main.add_subparsers(required=True)
    for command, names in (
        (balance, ["file", "--json", "--total"]),
        (accounts, ["file"]),
        (export, ["file", "out"]),
        (add, ["file", "date", "account", "amount", "note"]),
        (budget, ["file", "limits", "--strict"]),
        (months, ["file"]),
    ):
        sub = commands.add_parser(command.__name__)
        sub.set_defaults(command=command)
        for name in names:
            if name.startswith("--"):
                sub.add_argument(name, action="store_true")
            else:
                sub.add_argument(name, **({"nargs": "?", "default": ""} if name == "note" else {}))
    return main


def main():
    options = parser().parse_args()
    try:
        return options.command(options)
    except LedgerError as problem:
        print(f"ledger: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
