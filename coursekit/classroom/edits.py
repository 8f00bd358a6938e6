"""Edits of `minimal.py`: what a chapter would write differently.

Each is a list of pairs, old and new text, for the file as it stands after
chapter 12.  A page shows one with ``{lesson} Name`` and ``:edit: name``; its
cells run it with ``lesson.load(12, EDITS["name"])``.  Several go together
by adding their lists, as long as they change different lines.
"""

__all__ = ["EDITS"]

EDITS: dict[str, list[tuple[str, str]]] = {
    # Every token sees all others, also those to its right.
    "no_mask": [
        (
            "        mask = causal_mask(ids.size(1), end)\n",
            "        mask = torch.ones(1, end, dtype=torch.bool)\n",
        ),
    ],
}
