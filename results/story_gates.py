"""Three gates: does a model of little stories know whom a sentence is about?

Each gate asks about pairs of words that no story has (`story_grammar`).  It
holds if nearly all questions are answered right; if a few heads, zeroed,
bring the answers near to chance; and if as many others don't.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coursekit.decoder import GPT
from coursekit.interpret import ablate, intervene, watch
from coursekit.tokenizer import Tokenizer
from results import story_grammar as grammar

PAIRS, RANDOM_SETS, MOST_HEADS = 200, 10, 3
LEAST, NEAR_CHANCE, LEAST_WITHOUT_OTHERS = 0.95, 0.65, 0.9
"""Bounds of a score: intact, without its heads, and without others."""
Head = tuple[int, int]
"""Block and head, from 0."""


class Question(NamedTuple):
    """A prompt, the token that should come next, and the one that not."""

    prompt: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Gate:
    """A gate: a behavior of the model, tested with pairs of words."""

    pairs: Callable[[], Iterator[tuple[str, str]]]
    ask: Callable[[str, str, random.Random], list[Question]]
    first: bool = False
    """The right token must come before all others, not only the wrong one."""


def ask_cause(x: str, y: str, r: random.Random) -> list[Question]:
    """Who was hungry, who was scared?"""
    prompt = f"The {x} chased the {y} because it was {{}}. So the"
    return [
        Question(prompt.format("hungry"), x, y),
        Question(prompt.format("scared"), y, x),
    ]


def ask_owner(a: str, b: str, r: random.Random) -> list[Question]:
    """Who has it now?"""
    prompt = f"{a} {{}} {b} the {r.choice(grammar.THINGS)}. Now"
    return [
        Question(prompt.format("gave"), b, a),
        Question(prompt.format("showed"), a, b),
    ]


def ask_name(a: str, p: str, r: random.Random) -> list[Question]:
    """What was the surname?"""
    other = r.choice([s for s in grammar.SURNAMES if s != p])
    person = f"{a} {p} was a {r.choice(grammar.PEOPLE)}"
    return [Question(f"{person}. The next day {a}", p, other)]


def ask_names(a: str, p: str, r: random.Random) -> list[Question]:
    """What was the surname?  Another person stands beside it."""
    b = r.choice([n for n in grammar.NAMES if n != a])
    s = r.choice([n for n in grammar.SURNAMES if n != p])
    end = f"at the lake. The next day {a}"
    return [
        Question(f"{a} {p} met {b} {s} {end}", p, s),
        Question(f"{b} {s} met {a} {p} {end}", p, s),
    ]


def full_names() -> Iterator[tuple[str, str]]:
    """Every first name with every surname."""
    return product(grammar.NAMES, grammar.SURNAMES)


GATES = {
    "cause": Gate(lambda: permutations(grammar.ANIMALS, 2), ask_cause),
    "owner": Gate(lambda: permutations(grammar.NAMES, 2), ask_owner),
    "name": Gate(full_names, ask_name, first=True),
    "names": Gate(full_names, ask_names, first=True),
}
MUST_HOLD = ("cause", "owner", "name")
"""The gates of a model that is shipped; names beside names are harder."""


def questions(
    name: str, held_out: bool = True, n_pairs: int = PAIRS
) -> list[Question]:
    """A gate's questions, about pairs that are held out, or that are not."""
    gate, r = GATES[name], random.Random(0)
    pairs = [
        pair for pair in gate.pairs() if grammar.held_out(*pair) == held_out
    ]
    chosen = r.sample(pairs, n_pairs)
    return [question for pair in chosen for question in gate.ask(*pair, r)]


class Exam(NamedTuple):
    """Questions as ids; all prompts have the same length."""

    prompts: Tensor
    """(N, T) ids."""
    right: Tensor
    """(N,) the token that should come next."""
    wrong: Tensor
    """(N,) the token that should not."""
    says_right: Tensor
    """(N, T) where the prompt says the right word: 1, else 0."""
    says_wrong: Tensor
    """(N, T) where it says the wrong one."""


def exam(asked: Sequence[Question], tokenizer: Tokenizer) -> Exam:
    """Encode questions; each answer is one token."""
    answers = [
        [tokenizer.encode(" " + answer) for answer in question[1:]]
        for question in asked
    ]
    right, wrong = torch.tensor(answers)[..., 0].T
    rows = [tokenizer.encode(question.prompt) for question in asked]
    words = [[tokenizer.decode([i]).strip() for i in row] for row in rows]
    says = [
        [
            [float(word == question[n]) for word in row]
            for row, question in zip(words, asked, strict=True)
        ]
        for n in (1, 2)  # the right and the wrong word
    ]
    return Exam(torch.tensor(rows), right, wrong, *torch.tensor(says))


def answers(
    model: GPT, prompts: Tensor, silent: Sequence[Head] = ()
) -> Tensor:
    """(N, V) logits after the last token, with some heads zeroed."""
    with intervene(model, heads=ablate(silent)):
        return model(prompts)[:, -1]


def margins(logits: Tensor, of: Exam, first: bool = False) -> Tensor:
    """(N,) by how much the right token leads, over one other or over all."""
    right = logits.gather(1, of.right[:, None])
    if first:
        others = logits.scatter(1, of.right[:, None], -torch.inf)
        return right[:, 0] - others.amax(1)
    return (right - logits.gather(1, of.wrong[:, None]))[:, 0]


def score(
    model: GPT, of: Exam, first: bool = False, silent: Sequence[Head] = ()
) -> float:
    """The fraction of questions that are answered right."""
    lead = margins(answers(model, of.prompts, silent), of, first)
    return round((lead > 0).double().mean().item(), 4)


# -- the heads behind them ---------------------------------------------------
def every_head(model: GPT) -> list[Head]:
    """All heads of a model."""
    config = model.config
    return [*product(range(config.n_layers), range(config.n_heads))]


def strongest(model: GPT, of: Exam, first: bool, n: int) -> list[Head]:
    """Heads without which the lead is smallest, found one after the other."""
    found: list[Head] = []
    for _ in range(n):
        left = {
            head: margins(
                answers(model, of.prompts, [*found, head]), of, first
            ).mean()
            for head in every_head(model)
            if head not in found
        }
        found.append(min(left, key=lambda head: left[head].item()))
    return found


def without(
    model: GPT, of: Exam, first: bool, heads: Sequence[Head]
) -> dict[str, Any]:
    """The score without some heads, and its mean without as many others."""
    others = without_others(model, of, first, heads, RANDOM_SETS)
    alone = score(model, of, first, heads)
    return {"heads": heads, "score": alone, "others": others}


def without_others(
    model: GPT, of: Exam, first: bool, heads: Sequence[Head], n_sets: int
) -> float:
    """The mean score without as many other heads, drawn at random."""
    r = random.Random(0)
    rest = [head for head in every_head(model) if head not in heads]
    scores = [
        score(model, of, first, r.sample(rest, len(heads)))
        for _ in range(n_sets)
    ]
    return round(sum(scores) / n_sets, 4)


def pointing(model: GPT, of: Exam) -> tuple[Head, list[float]]:
    """The head whose last query tells the right word from the wrong one.

    Returns:
        The head, and its mean weights on the right and on the wrong word.
    """
    last = watch(model, of.prompts).weights[:, :, :, -1]  # (L, N, H, T)
    right, wrong = (
        (last * says[:, None]).sum(-1).mean(1)  # (L, H)
        for says in (of.says_right, of.says_wrong)
    )
    block, head = divmod(int((right - wrong).argmax()), last.size(2))
    on = [round(w[block, head].item(), 3) for w in (right, wrong)]
    return (block, head), on


def inspect(model: GPT, tokenizer: Tokenizer) -> dict[str, Any]:
    """Each gate: intact, without its heads, without others, who points."""
    found = {}
    for name, gate in GATES.items():
        asked = exam(questions(name), tokenizer)
        seen = exam(questions(name, held_out=False, n_pairs=40), tokenizer)
        head, weights = pointing(model, asked)
        heads = strongest(model, seen, gate.first, MOST_HEADS)
        found[name] = {
            "intact": score(model, asked, gate.first),
            "pointing": {"head": head, "right and wrong": weights},
            "without": [
                without(model, asked, gate.first, heads[:n])
                for n in range(1, MOST_HEADS + 1)
            ],
        }
    asked = exam(unmentioned(), tokenizer)
    found["name"]["unmentioned"] = score(model, asked, first=True)
    return found


def unmentioned() -> list[Question]:
    """The gate of names without the sentence that says them."""
    return [
        Question(prompt.split(". ")[1], right, wrong)
        for prompt, right, wrong in questions("name")
    ]


def needed(gate: dict[str, Any]) -> list[Head] | None:
    """The fewest heads that a gate which holds needs, from `inspect`."""
    for row in gate["without"]:
        near, kept = row["score"] <= NEAR_CHANCE, row["others"]
        if near and kept >= LEAST_WITHOUT_OTHERS and gate["intact"] >= LEAST:
            return [(block, head) for block, head in row["heads"]]
    return None
