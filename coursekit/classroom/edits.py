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
    # Every token sees all others but the next one, its own target.
    "hide_next": [
        (
            "        mask = causal_mask(ids.size(1), end)\n",
            "        next_one = torch.ones(end, end).triu(1).tril(1)\n"
            "        mask = next_one == 0\n",
        ),
    ],
    # Some tokens are hidden in the input; the loss asks for these alone.
    "masked_language_model": [
        (
            "of the text; every token's target is the next one.",
            "of the text, with some of their tokens hidden.",
        ),
        (
            """\
    windows = ids.unfold(0, context + 1, 1)  # all of them, without a copy
    rows = torch.randint(len(windows), (batch_size,))
    return windows[rows, :-1], windows[rows, 1:]
""",
            """\
    windows = ids.unfold(0, context, 1)  # all of them, without a copy
    rows = torch.randint(len(windows), (batch_size,))
    targets = windows[rows]
    hidden = torch.rand(targets.shape) < 0.15
    inputs = targets.masked_fill(hidden, 0)  # token 0 is [MASK]
    return inputs, targets, hidden
""",
        ),
        (
            "        inputs, targets = get_batch(ids, batch_size, ",
            "        inputs, targets, hidden = get_batch(ids, batch_size, ",
        ),
        (
            "        loss = cross_entropy(model(inputs), targets)\n",
            "        logits = model(inputs)[hidden]  # at the gaps only\n"
            "        loss = cross_entropy(logits, targets[hidden])\n",
        ),
    ],
}
