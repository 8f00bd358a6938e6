"""Edits of `minimal.py`: what a chapter would write differently.

Each is a list of pairs, old and new text, for the file as it stands after
chapter 12.  A page shows one with ``{lesson} Name`` and ``:edit: name``; its
cells run it with ``lesson.load(12, EDITS["name"])``.  Several go together
by adding their lists, as long as they change different lines.
"""

__all__ = ["EDITS"]

EDITS: dict[str, list[tuple[str, str]]] = {
    # Chapter 11: the loss on held-out text, ten times in a run.
    "validation": [
        (
            "def train(model, ids, steps, batch_size=32):",
            "def train(model, ids, held_out, steps, batch_size=32):",
        ),
        ("    losses = []\n", "    losses, validation = [], []\n"),
        (
            "        losses.append(loss.item())\n    return losses\n",
            "        losses.append(loss.item())\n"
            "        if (step + 1) % (steps // 10) == 0:\n"
            "            validation.append(evaluate(model, held_out))\n"
            "    return losses, validation\n",
        ),
    ],
    # Every token sees all others, also those to its right.
    "no_mask": [
        (
            "        mask = causal_mask(ids.size(1), end)\n",
            "        mask = torch.ones(1, end, dtype=torch.bool)\n",
        ),
    ],
}
