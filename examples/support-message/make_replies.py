"""Writes seen.jsonl, live.jsonl, labels.csv and people.csv: messages of customers, four replies each, what people say.

A reply passes with people when it does what was asked, names the right order and promises nothing that the shop does
not do. How often a system manages that differs from message to message. All of it is made up here, seeded.

    python examples/support-message/make_replies.py
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
N = 4
KINDS = {  # kind: (what the customer wants, what settles it, what does not)
    "refund": (
        "I sent the {thing} of order {order} back two weeks ago and see no money yet.",
        "I have started the refund for order {order}; it reaches your account within five working days.",
        "Please send us the {thing} of order {order}, and we will look at it.",
    ),
    "delivery": (
        "Order {order} with my {thing} should have arrived on Monday. Where is it?",
        "Order {order} is with the carrier and arrives on Thursday; I have sent you the tracking link.",
        "You can place order {order} again in our shop at any time.",
    ),
    "damage": (
        "The {thing} from order {order} came broken. I need it by Saturday.",
        "A new {thing} for order {order} leaves today by express and is with you on Friday.",
        "Please read the instructions that came with order {order}.",
    ),
    "address": (
        "I moved last week. Please send order {order} ({thing}) to 14 Mill Lane instead.",
        "Order {order} now goes to 14 Mill Lane; you will get a new confirmation today.",
        "Order {order} has been cancelled, as you asked.",
    ),
}
THINGS = ["kettle", "lamp", "rucksack", "toaster", "radio", "tent", "blender", "camera"]
NAMES = ["Ms Adeyemi", "Mr Brandt", "Ms Costa", "Mr Duarte", "Ms Eriksen", "Mr Farouk", "Ms Georgiou", "Mr Horvat"]
WARM = [
    "Thank you for getting in touch, and please accept our apologies for the trouble this has caused you.",
    "I understand how annoying this must be, and I am sorry that you had to write to us about it.",
]
PROMISES = [
    "As an apology you get your next three orders for free.",
    "If anything goes wrong again, we refund double the price.",
]
END = ["Please do not hesitate to write again if there is anything else that we can do for you.", ""]


def reply(rng: random.Random, message: dict[str, str], good: bool) -> str:
    """A reply with nothing wrong in it, or with one thing."""
    flaw = None if good else rng.choice(["action", "order", "promise", "order"])
    order = str(int(message["order"]) + rng.choice([-10, 10, 100])) if flaw == "order" else message["order"]
    _, settles, wrong = KINDS[message["kind"]]
    does = (wrong if flaw == "action" else settles).format(order=order, thing=message["thing"])
    warm = [rng.choice(WARM)] if rng.random() < (0.45 if good else 0.6) else []
    promise = [rng.choice(PROMISES)] if flaw == "promise" else []
    parts = [f"Dear {message['name']},", *warm, does, *promise, rng.choice(END)]
    return " ".join(part for part in parts if part)


def cases(rng: random.Random, name: str, count: int) -> list[dict]:
    """Messages, each with its replies and what people say of them."""
    found = []
    for number in range(count):
        kind, thing = rng.choice(list(KINDS)), rng.choice(THINGS)
        message = {"kind": kind, "thing": thing, "name": rng.choice(NAMES), "order": str(rng.randint(10300, 98600))}
        ability = rng.betavariate(1.6, 1.4)
        human = [int(rng.random() < ability) for _ in range(N)]
        replies = [reply(rng, message, bool(one)) for one in human]
        text = KINDS[kind][0].format(order=message["order"], thing=thing)
        found.append({"id": f"{name}-{number:03}", "kind": kind, "input": text, "replies": replies, "human": human})
    return found


def written(case: dict, *, labelled: bool) -> str:
    outputs = [
        {"text": text, **({"label.people": human} if labelled else {})}
        for text, human in zip(case["replies"], case["human"], strict=True)
    ]
    return json.dumps({"id": case["id"], "kind": case["kind"], "input": case["input"], "outputs": outputs}) + "\n"


def write_labels(name: str, found: list[dict]) -> None:
    """A line a reply: its message, its place, 1 where people pass it."""
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "index", "human"])
        writer.writerows([case["id"], i, human] for case in found for i, human in enumerate(case["human"]))


def main() -> None:
    rng = random.Random(21)
    seen, live = cases(rng, "seen", 80), cases(rng, "new", 150)
    (HERE / "seen.jsonl").write_text("".join(written(case, labelled=True) for case in seen), encoding="utf-8")
    (HERE / "live.jsonl").write_text("".join(written(case, labelled=False) for case in live), encoding="utf-8")
    write_labels("labels.csv", seen)
    write_labels("people.csv", live)


if __name__ == "__main__":
    main()
