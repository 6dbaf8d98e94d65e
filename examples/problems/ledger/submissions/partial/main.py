"""A ledger that is right where it matters most, and careless at the edges.

Its mistakes, each of them on purpose: `accounts` repeats an account, `export` ends with the number of entries as its
status, `months` drops the sign, `--strict` does nothing, and bad input is hardly looked at.
"""

import csv
import json
import os
import sys
from pathlib import Path


def read_entries(name):
    lines = sys.stdin.read() if name == "-" else Path(name).read_text()
    return [{**row, "amount": float(row["amount"])} for row in csv.DictReader(lines.splitlines())]


def balance(name, *options):
    entries = read_entries(name)
    found = {}
    for entry in entries:
        found[entry["account"]] = round(found.get(entry["account"], 0) + entry["amount"], 2)
    total = round(sum(found.values()), 2)
    if "--json" in options:
        print(json.dumps({"accounts": found, "total": total, "entries": len(entries)}))
    elif "--total" in options:
        print(total)
    else:
        for account in sorted(found):
            print(f"{account} {found[account]:.2f}")
        print(f"total {total:.2f} {os.environ['LEDGER_CURRENCY']}")


def accounts(name):
    for entry in read_entries(name):
        print(entry["account"])


def export(name, out):
    entries = read_entries(name)
    Path(out).write_text(json.dumps(entries, indent=2) + "\n")
    print(f"wrote {len(entries)} entries")
    return len(entries)


def add(name, date, account, amount, note=""):
    path = Path(name)
    text = path.read_text() if path.exists() else "date,account,amount,note\n"
    path.write_text(f"{text}{date},{account},{amount},{note}\n")
    print(f"added {len(read_entries(name))}")


def budget(name, limits, *_):
    entries = read_entries(name)
    rows = []
    for account, limit in sorted(json.loads(Path(limits).read_text()).items()):
        spent = -sum(e["amount"] for e in entries if e["account"] == account and e["amount"] < 0)
        rows.append({"account": account, "limit": limit, "spent": spent, "over": spent > limit})
    print(json.dumps(rows))


def months(name):
    entries = read_entries(name)
    print("month,in,out,net")
    for month in sorted({entry["date"][:7] for entry in entries}):
        amounts = [entry["amount"] for entry in entries if entry["date"][:7] == month]
        income, spent = sum(a for a in amounts if a > 0), -sum(a for a in amounts if a < 0)
        print(f"{month},{income:.2f},{spent:.2f},{income - spent:.2f}")


COMMANDS = {f.__name__: f for f in (balance, accounts, export, add, budget, months)}

if __name__ == "__main__":
    if sys.argv[1] not in COMMANDS:
        print(f"commands: {', '.join(COMMANDS)}")
        sys.exit(2)
    try:
        sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
    except FileNotFoundError as problem:
        sys.exit(f"ledger: {problem.filename}: no such file")
