"""Spoken orders and their fields: the little world that both the tiny model and the dataset come from.

An `Order` is what the customer ends up wanting; `describe` words it the way a person would, including
quantities that are corrected later. The lists are closed on purpose: a model of this size copies words that it
met in pretraining and garbles the others. What pretraining leaves out is in `ORDERS_VOICE`: wordings that
`PLAIN_VOICE` lacks, so that fine-tuning has something to learn that generalises, and something to memorise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

FIRST_NAMES = (
    "Ana", "Ben", "Chloe", "Elif", "Greta", "Hugo", "Ines", "Jonas", "Kavya", "Liam",
    "Mira", "Noor", "Olga", "Pedro", "Rosa", "Sven", "Tariq", "Yuki",
)  # fmt: skip
SURNAMES = ("Brandt", "Costa", "Dahl", "Fox", "Kim", "Lopez", "Novak", "Singh")
CITIES = (
    "Bergen", "Cairo", "Genoa", "Leeds", "Lima", "Lyon",
    "Oslo", "Porto", "Quito", "Riga", "Seoul", "Turin",
)  # fmt: skip
PLURALS = {
    "bowl": "bowls", "box": "boxes", "brush": "brushes", "candle": "candles", "chair": "chairs",
    "clock": "clocks", "jar": "jars", "kettle": "kettles", "knife": "knives", "lamp": "lamps",
    "mug": "mugs", "pillow": "pillows", "plate": "plates", "rug": "rugs", "shelf": "shelves",
    "towel": "towels", "tray": "trays", "vase": "vases",
}  # fmt: skip
COLOURS = ("black", "blue", "green", "red", "white")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MAX_QUANTITY = len(NUMBER_WORDS) - 1

FieldValue = str | bool | list[str] | None


@dataclass(frozen=True)
class Line:
    """One thing asked for: `asked` is the quantity first named, `wanted` the one that stands (0: cancelled)."""

    item: str
    asked: int
    wanted: int


@dataclass(frozen=True)
class Order:
    """An order as the customer means it; `day` and `note` are None where nothing was said."""

    customer: str
    city: str
    lines: tuple[Line, ...]
    day: str | None
    express: bool
    gift: bool
    note: str | None

    @property
    def basket(self) -> list[str]:
        """What stands in the end, in the order of mention: "9 boxes".

        Quantity before item, as in the sentence: a model of this size can copy, but hardly look back.
        """
        return [f"{line.wanted} {named(line.item, line.wanted)}" for line in self.lines if line.wanted]

    def fields(self) -> dict[str, FieldValue]:
        """All fields in the order that the dataset asks for; what was not said is null, false or "standard"."""
        return {
            "customer": self.customer,
            "city": self.city,
            "items": self.basket,
            "day": self.day,
            "ship": "express" if self.express else "standard",
            "gift": self.gift,
            "note": self.note,
        }


@dataclass(frozen=True)
class Voice:
    """The wordings a speaker draws from. An empty one leaves the default unsaid, as people mostly do."""

    openings: tuple[str, ...]
    requests: tuple[str, ...]
    days: tuple[str, ...]
    express: tuple[str, ...]
    standard: tuple[str, ...]
    gift: tuple[str, ...]
    no_gift: tuple[str, ...]
    notes: dict[str, tuple[str, ...]]
    changes: tuple[str, ...]
    cancellations: tuple[str, ...]
    asides: tuple[str, ...]
    quantities: dict[int, tuple[str, ...]]


PLAIN_VOICE = Voice(
    openings=(
        "{customer} from {city} here.",
        "This is {customer} in {city}.",
        "Order for {customer}, {city}.",
        "My name is {customer}, I live in {city}.",
        "{customer} speaking, in {city}.",
        "It goes to {city}, for {customer}.",
        "An order for {city}. My name? {customer}.",
    ),
    requests=(
        "I need {items}.",
        "Please send {items}.",
        "I would like {items}.",
        "{items}, please.",
        "Put me down for {items}.",
        "Could I get {items}?",
    ),
    days=("It should arrive on {day}.", "Deliver it on {day}.", "By {day}, please.", "{day} is best."),
    express=("Express delivery.", "Send it express.", "It is urgent."),
    standard=("", "", "Standard delivery.", "No hurry."),
    gift=("It is a gift.", "Wrap it as a gift."),
    no_gift=("", "", "It is not a gift."),
    notes={
        "ring twice": ("Ring twice.", "Please ring twice."),
        "leave at door": ("Leave it at the door.", "Leave at door."),
        "call first": ("Call first.", "Please call me first."),
        "use back gate": ("Use the back gate.", "Please use the back gate."),
        "fragile": ("It is fragile.", "Careful, fragile."),
    },
    changes=(
        "Make that {quantity} {item}.",
        "Sorry, I meant {quantity} {item}.",
        "Did I say {asked}? It is {quantity} {item}.",
    ),
    cancellations=("No {item} after all.", "Please drop the {item}."),
    asides=("Thank you.", "Thanks a lot."),
    quantities={2: ("a pair of",), 6: ("half a dozen",)},
)

ORDERS_VOICE = replace(
    PLAIN_VOICE,
    express=(*PLAIN_VOICE.express, "I can't wait.", "Rush it."),
    standard=(*PLAIN_VOICE.standard, "Take your time.", "Send it the cheap way."),
    gift=(*PLAIN_VOICE.gift, "Make it pretty.", "It needs a ribbon."),
    no_gift=(*PLAIN_VOICE.no_gift, "It is for me."),
    notes=PLAIN_VOICE.notes
    | {
        "leave at door": (*PLAIN_VOICE.notes["leave at door"], "Put it by the door."),
        "fragile": (*PLAIN_VOICE.notes["fragile"], "It breaks, so be gentle."),
    },
    changes=(*PLAIN_VOICE.changes, "No, {quantity} {item} will do."),
    cancellations=(*PLAIN_VOICE.cancellations, "Forget the {item}."),
    asides=(
        *PLAIN_VOICE.asides,
        "You were good to me last time.",
        "I hope you are well.",
        "It rains a lot here.",
        "My sister told me about you.",
        "The shop in town is closed again.",
    ),
)


def plural(item: str) -> str:
    """The plural of an item that may carry a colour: "red shelf" gives "red shelves"."""
    *colour, noun = item.split()
    return " ".join((*colour, PLURALS[noun]))


def named(item: str, quantity: int) -> str:
    """The item in the number that its quantity calls for."""
    return item if quantity == 1 else plural(item)


def spoken(quantity: int, voice: Voice, rng: random.Random) -> str:
    """The quantity in digits mostly, sometimes in words, or in the voice's own expression for it."""
    word = rng.choice(("a", "one")) if quantity == 1 else NUMBER_WORDS[quantity]
    return rng.choice((*([str(quantity)] * 4), word, *voice.quantities.get(quantity, ())))


def sample_order(rng: random.Random, *, n_lines: int, change_share: float) -> Order:
    """A random order of `n_lines` different items, a share of which is changed or cancelled afterwards."""
    nouns = rng.sample(sorted(PLURALS), n_lines)
    items = [f"{rng.choice(COLOURS)} {noun}" if rng.random() < 0.3 else noun for noun in nouns]
    lines = [sample_line(item, rng, change_share=change_share) for item in items]
    if not any(line.wanted for line in lines):
        lines[0] = Line(items[0], lines[0].asked, lines[0].asked)
    first_name = rng.choice(FIRST_NAMES)
    return Order(
        customer=f"{first_name} {rng.choice(SURNAMES)}" if rng.random() < 0.4 else first_name,
        city=rng.choice(CITIES),
        lines=tuple(lines),
        day=rng.choice(DAYS) if rng.random() < 0.6 else None,
        express=rng.random() < 0.5,
        gift=rng.random() < 0.5,
        note=rng.choice(sorted(PLAIN_VOICE.notes)) if rng.random() < 0.5 else None,
    )


def sample_line(item: str, rng: random.Random, *, change_share: float) -> Line:
    """One line; of those changed, two in three get another quantity and one in three is cancelled."""
    asked = rng.randint(1, MAX_QUANTITY)
    if rng.random() >= change_share:
        return Line(item, asked, asked)
    others = [quantity for quantity in range(1, MAX_QUANTITY + 1) if quantity != asked]
    return Line(item, asked, rng.choice(others) if rng.random() < 2 / 3 else 0)


def describe(order: Order, voice: Voice, rng: random.Random, *, n_asides: int = 0) -> str:
    """The order in the voice's words: who and where, the items, then circumstances and corrections mixed."""
    items = [f"{spoken(line.asked, voice, rng)} {named(line.item, line.asked)}" for line in order.lines]
    listed = items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
    request = rng.choice(voice.requests).format(items=listed)
    circumstances = [
        rng.choice(voice.days).format(day=order.day) if order.day else "",
        rng.choice(voice.express if order.express else voice.standard),
        rng.choice(voice.gift if order.gift else voice.no_gift),
        rng.choice(voice.notes[order.note]) if order.note else "",
        *rng.sample(voice.asides, n_asides),
    ]
    rng.shuffle(circumstances)
    corrections = [correction(line, voice, rng) for line in order.lines if line.wanted != line.asked]
    split = rng.randint(0, len(circumstances))
    parts = [
        rng.choice(voice.openings).format(customer=order.customer, city=order.city),
        request[0].upper() + request[1:],
        *circumstances[:split],
        *corrections,
        *circumstances[split:],
    ]
    return " ".join(part for part in parts if part)


def correction(line: Line, voice: Voice, rng: random.Random) -> str:
    """The sentence that changes or cancels a line."""
    if line.wanted == 0:
        return rng.choice(voice.cancellations).format(item=named(line.item, line.asked))
    return rng.choice(voice.changes).format(
        quantity=spoken(line.wanted, voice, rng),
        item=named(line.item, line.wanted),
        asked=spoken(line.asked, voice, rng),
    )
