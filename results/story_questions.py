"""Questions about little stories, each with its one right answer.

What a story decides (`results/story_grammar.py`) is what its answer says, so
that an answer can be checked word by word.  There are six kinds.  As in the
stories, a fifth of all pairs of animals and of first names stands in none of
the questions that a model is tuned on.
"""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from results import story_grammar as grammar

TEMPLATE = "{} Q: {} A:"
"""How a prompt is made of a story and a question; see `Asked.prompt`."""
ACTIONS = {  # what was done: what somebody did
    "chased": "chase",
    "followed": "follow",
    "carried": "carry",
    "helped": "help",
    "hid from": "hide from",
    "ran from": "run from",
    "pushed": "push",
    "woke": "wake",
    "fed": "feed",
    "teased": "tease",
    "watched": "watch",
    "hugged": "hug",
}


class Asked(NamedTuple):
    """A story, a question about it, and the answer."""

    story: str
    question: str
    answer: str

    def prompt(self, template: str = TEMPLATE) -> str:
        """Prompt that the model is given."""
        return template.format(self.story, self.question)


SIX = (
    Asked(
        "The dog chased the cat because it was hungry.",
        "Who was hungry?",
        "The dog.",
    ),
    Asked(
        "The dog chased the cat because it was scared.",
        "Why did the dog chase the cat?",
        "Because the cat was scared.",
    ),
    Asked(
        "The dog chased the cat because it was hungry.",
        "Was the cat hungry?",
        "No, the dog was.",
    ),
    Asked("Lily gave Jack the kite.", "Who has the kite?", "Jack."),
    Asked(
        "Lily went to the park, and Jack went to the lake.",
        "Where is Jack?",
        "At the lake.",
    ),
    Asked(
        "Lily has a red ball, and Jack has a blue kite.",
        "What color is the kite?",
        "It is blue.",
    ),
)
"""The prompts that chapters 20 to 22 show; their pairs are held out."""


# -- one kind each -----------------------------------------------------------
def cause(r: random.Random) -> grammar.Words:
    """Who did what to whom, because of what."""
    words = grammar.cause(r)
    told = "the {x} {verb} the {y} because {it} was {adj}."
    return words | {"told": grammar.fill(told, words, r)}


def ask_who(r: random.Random) -> Asked:
    """Who was hungry?"""
    w = cause(r)
    return Asked(w["told"], f"who was {w['adj']}?", f"the {w['ref']}.")


def ask_why(r: random.Random) -> Asked:
    """Why did the dog chase the cat?"""
    w = cause(r)
    question = f"why did the {w['x']} {ACTIONS[w['verb']]} the {w['y']}?"
    return Asked(
        w["told"], question, f"because the {w['ref']} was {w['adj']}."
    )


def ask_whether(r: random.Random) -> Asked:
    """Was the cat hungry?"""
    w = cause(r)
    asked, word = r.choice([(w["ref"], "yes"), (w["other"], "no")])
    question = f"was the {asked} {w['adj']}?"
    return Asked(w["told"], question, f"{word}, the {w['ref']} was.")


def ask_owner(r: random.Random) -> Asked:
    """Who has the kite?"""
    w = grammar.gift(r)
    story = grammar.fill("{a} {did}.", w, r)
    return Asked(story, f"who has the {w['t']}?", f"{w['has']}.")


def ask_where(r: random.Random) -> Asked:
    """Where is Jack?"""
    w = grammar.anything(r)
    told = "{a} {went} to the {p}, and {b} {went} to the {p2}."
    name, place = r.choice([("a", "p"), ("b", "p2")])
    story = grammar.fill(told, w, r)
    return Asked(story, f"where is {w[name]}?", f"at the {w[place]}.")


def ask_color(r: random.Random) -> Asked:
    """What color is the kite?"""
    w = grammar.anything(r)
    told = "{a} has a {c} {t}, and {b} has a {c2} {t2}."
    thing, color = r.choice([("t", "c"), ("t2", "c2")])
    story = grammar.fill(told, w, r)
    question = f"what color is the {w[thing]}?"
    return Asked(story, question, f"it is {w[color]}.")


KINDS: dict[str, Callable[[random.Random], Asked]] = {
    "who": ask_who,
    "why": ask_why,
    "whether": ask_whether,
    "owner": ask_owner,
    "where": ask_where,
    "color": ask_color,
}


def spell(asked: Asked) -> Asked:
    """Capital letters and articles as English has them."""
    return Asked(*map(grammar.spell, asked))


def questions(n: int, seed: int, held_out: bool = False) -> Iterator[Asked]:
    """Ask questions, the kinds in turn.

    Args:
        n: how many.
        seed: fixes them.
        held_out: about pairs that no story had, and no other question.
    """
    r = random.Random(f"questions {seed} {held_out}")
    kinds = [*KINDS.values()]
    for i in range(n):
        while True:
            asked = spell(kinds[i % len(kinds)](r))
            if grammar.has_held_out(asked.story) == held_out:
                yield asked
                break


if __name__ == "__main__":
    for each in questions(30, 0):
        print(each.prompt(), each.answer)
