"""``coursekit capstone`` for a translator, in the process of its file.

The contracts, then the model learns to write dates one way, and translates
days that it has never seen.
"""

from pathlib import Path

import torch

from coursekit_classroom.dates import date_pairs
from coursekit_classroom.glue import result
from coursekit_classroom.yourfile.check_capstone import imports
from coursekit_classroom.yourfile.contracts.base import File, Sizes, title
from coursekit_classroom.yourfile.contracts.translation import CONTRACTS, EOS
from coursekit_classroom.yourfile.loading import LIMIT, guarded, hold, load

SIZES = Sizes(context=40, d_model=64, n_heads=4, n_blocks=2)
STEPS, BATCH = 600, 32
N_PAIRS, N_HELD_OUT = 20_000, 200
TOLERANCE = 0.05


class Dates:
    """Dates in words and digits; no held-out day is in a learned pair."""

    def __init__(self) -> None:
        """Number the characters, after PAD, BOS and EOS."""
        learned = date_pairs(N_PAIRS, seed=0)
        days = {day for _, day in learned}
        others = date_pairs(5 * N_HELD_OUT, seed=1)
        self.asked = [p for p in others if p[1] not in days][:N_HELD_OUT]
        characters = sorted(set("".join(a + b for a, b in learned)))
        self.id_of = {char: i for i, char in enumerate(characters, EOS + 1)}
        self.characters = ["", "", "", *characters]
        self.learned = [(self.encode(a), self.encode(b)) for a, b in learned]

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with its end."""
        return [*(self.id_of[char] for char in text), EOS]

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        return "".join(self.characters[i] for i in ids)


def accuracy(file: File, dates: Dates, seed: int, steps: int) -> float:
    """Train with a seed; the fraction of held-out dates that are right."""
    torch.manual_seed(seed)
    model = file["translator"](len(dates.characters), *SIZES)
    file["train"](model, dates.learned, steps, BATCH)
    translations = file["translate"](
        model.eval(), [dates.encode(a) for a, _ in dates.asked]
    )
    right = 0
    for (_, answer), row in zip(dates.asked, translations, strict=True):
        right += dates.decode(row) == answer
    for (question, _), row in zip(
        dates.asked[:3], translations[:3], strict=True
    ):
        print(f"    {question} → {dates.decode(row)}")
    return right / len(dates.asked)


def translated(file: File, steps: int) -> tuple[bool, float]:
    """Train on dates; whether as many as in the book's runs come out right."""
    dates = Dates()
    print(f"Training for {steps:,} steps.", flush=True)
    measured = accuracy(file, dates, 0, steps)
    print(f"{measured:.1%} of {N_HELD_OUT} held-out dates are exactly right")
    if steps != STEPS:
        print(f"✗ not compared: the book's runs have {STEPS} steps.")
        return False, measured
    values = result("capstone_dates")["accuracy"]["values"]
    least = min(values) - TOLERANCE
    passed = measured >= least
    print(
        f"{'✓' if passed else '✗'} at least {least:.1%}; the book's file: "
        f"{min(values):.1%} to {max(values):.1%}, {len(values)} seeds"
    )
    return passed, measured


def main(file: str, steps: int | None) -> tuple[bool, float]:
    """Go through all contracts and the training.

    Raises:
        ContractError: at the first contract that does not hold.
    """
    path = Path(file).absolute()
    with guarded(path, title(imports), LIMIT):
        imports(path)
    loaded = load(path, 12)
    for contract, part in CONTRACTS:
        print(hold(path, loaded, contract, part), flush=True)
    with guarded(path, "Training: dates", 20 * LIMIT):
        return translated(loaded, steps or STEPS)
