"""Writes corpus.jsonl and queries.jsonl: help pages of a made-up bicycle-hire service, and what people type.

Every topic has a page that answers it (gain 2) and one that helps (gain 1). Three queries ask for it: in the words of
the page, in other words, and the first again with a slip of the keyboard in every longer word. Seeded; texts are ours.

    python examples/retrieval/make_data.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
TOPICS = {  # topic: (page, page that helps, query in its words, query in other words)
    "unlock": (
        "Unlock a bicycle. Scan the code on the handlebar with the app and wait for the lock to open.",
        "The lock does not open. Move the wheel a little, then scan the code a second time.",
        "unlock bicycle scan code",
        "how do I start riding",
    ),
    "return": (
        "Return a bicycle. Park it inside a marked zone and close the lock by hand; the ride ends on its own.",
        "Zones on the map. Marked zones are drawn in green; streets in red are closed for parking.",
        "return bicycle marked zone",
        "where can I leave the bike when I am done",
    ),
    "fine": (
        "Charge for parking outside a zone. A bicycle left outside a marked zone costs an extra 15 euro.",
        "Dispute a charge. Send a photograph of the parked bicycle within seven days of the charge.",
        "charge for parking outside a zone",
        "why was I billed a penalty",
    ),
    "refund": (
        "Ask for a refund. Open the ride in your history and choose refund; money arrives in five working days.",
        "Ride history. Every ride is listed with its route, its duration and its price.",
        "ask for a refund of a ride",
        "I want my money back",
    ),
    "card": (
        "Change your payment card. Add the new card under payments before you remove the old one.",
        "Accepted payments. Credit cards, debit cards and invoices for companies are accepted.",
        "change payment card",
        "my visa expired and I got a replacement",
    ),
    "password": (
        "Reset your password. A link is sent to the address of your account and works for one hour.",
        "Sign in without a password. A code sent to your telephone number signs you in.",
        "reset password link",
        "cannot get into my account any more",
    ),
    "delete": (
        "Delete your account. Settle open invoices first; personal data is erased after thirty days.",
        "Personal data. Routes are kept for ninety days and then made anonymous.",
        "delete account personal data",
        "stop storing everything about me and close my profile",
    ),
    "flat": (
        "Report a flat tyre. Choose report damage in the app, tick tyre, and leave the bicycle where it is.",
        "Damage you did not cause. Nobody pays for wear; report it and take another bicycle.",
        "report damage flat tyre",
        "the wheel has no air left",
    ),
    "brakes": (
        "Brakes that do not hold. Do not ride on; report damage, tick brakes, and lock the bicycle.",
        "Check before you ride. Try both brakes, the bell and the light before every ride.",
        "brakes do not hold report",
        "I could hardly stop at the crossing",
    ),
    "accident": (
        "After an accident. Call emergency services first, then our hotline, which is open at all hours.",
        "Insurance. Every ride includes liability insurance up to one million euro.",
        "accident emergency hotline",
        "I crashed and somebody is hurt",
    ),
    "helmet": (
        "Helmets. We recommend a helmet; shops with our sticker lend one for the day without a deposit.",
        "Children. Riders must be sixteen; a child seat can be fitted to cargo bicycles only.",
        "lend a helmet shops deposit",
        "can I borrow something to protect my head",
    ),
    "cargo": (
        "Cargo bicycles. They carry up to eighty kilograms and are booked for at least two hours.",
        "Book ahead. Cargo bicycles and groups of five can be booked a day ahead.",
        "cargo bicycle kilograms booked",
        "transport a washing machine across town",
    ),
    "subscription": (
        "Monthly subscription. For 12 euro a month the first thirty minutes of every ride are free.",
        "Prices. Without a subscription every thirty minutes cost 1.50 euro.",
        "monthly subscription free minutes",
        "is there a cheaper plan for commuters",
    ),
    "cancel": (
        "Cancel a subscription. Cancel three days before the month ends; it then runs out by itself.",
        "Pause a subscription. A pause of one to three months keeps your price.",
        "cancel subscription month ends",
        "I no longer want to pay every month",
    ),
    "invoice": (
        "Invoices. An invoice for every month can be downloaded as PDF under payments.",
        "Companies. A company account collects the rides of all staff on one invoice.",
        "download monthly invoice pdf",
        "I need paperwork for my tax return",
    ),
    "battery": (
        "Battery of electric bicycles. The display shows the range; below ten percent the motor switches off.",
        "Electric bicycles. The motor helps up to 25 kilometres an hour.",
        "battery range electric bicycle",
        "it suddenly stopped helping me uphill",
    ),
    "weather": (
        "Snow and storm. In heavy snow or storm bicycles are locked and rides in progress are free.",
        "Winter tyres. From November to March bicycles carry tyres with more grip.",
        "snow storm bicycles locked",
        "service closed because of the weather",
    ),
    "lost": (
        "Lost property. Things left in a basket are kept for four weeks at the depot in Harbour Street.",
        "Depot. The depot in Harbour Street is open on weekdays from eight to six.",
        "lost property basket depot",
        "I forgot my bag after the ride",
    ),
    "stolen": (
        "A bicycle stolen during your ride. Report it within one hour, with the police number of the case.",
        "Lock it even for a minute. You are liable for a bicycle that was left open.",
        "bicycle stolen report police",
        "someone took it while I was in the bakery",
    ),
    "friends": (
        "Ride with friends. One account can unlock up to four bicycles at the same time.",
        "Gift vouchers. A voucher of any amount can be sent to a friend by email.",
        "unlock four bicycles friends",
        "renting for my whole family at once",
    ),
}


def slip(word: str, rng: random.Random) -> str:
    """Two neighbouring letters inside a word of five letters or more change places, or one is missed."""
    if len(word) < 5:
        return word
    i = rng.randrange(1, len(word) - 2)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :] if rng.random() < 0.5 else word[:i] + word[i + 1 :]


def main() -> None:
    rng = random.Random(5)
    pages, queries = [], []
    for topic, (page, helps, plain, other) in TOPICS.items():
        pages += [{"id": f"{topic}-1", "text": page}, {"id": f"{topic}-2", "text": helps}]
        asked = {"words": plain, "paraphrase": other, "typo": " ".join(slip(word, rng) for word in plain.split())}
        relevant = {f"{topic}-1": 2, f"{topic}-2": 1}
        queries += [{"id": f"{topic}/{k}", "kind": k, "query": q, "relevant": relevant} for k, q in asked.items()]
    for name, records in (("corpus.jsonl", pages), ("queries.jsonl", queries)):
        (HERE / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


if __name__ == "__main__":
    main()
