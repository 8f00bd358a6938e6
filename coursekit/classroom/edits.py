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
    # A query sees the token after it as well.
    "off_by_one": [
        ("mask.tril(n_keys - n_queries)", "mask.tril(n_keys - n_queries + 1)"),
    ],
    # Each key divides its weight among the queries.
    "over_queries": [("scores.softmax(-1)", "scores.softmax(-2)")],
    # The shape is right; the rows stand at other positions.
    "merged_by_view": [
        ("heads.transpose(1, 2).flatten(2)", "heads.reshape(x.shape)"),
    ],
    # Rows of the batch attend to one another, tokens of a text do not.
    "across_batch": [
        (
            "        heads = attention(q, k, v, mask)\n",
            "        q, k, v = (t.transpose(0, 2) for t in (q, k, v))\n"
            "        mask = causal_mask(len(x), len(x))\n"
            "        heads = attention(q, k, v, mask).transpose(0, 2)\n",
        ),
    ],
    "no_scale": [(" / math.sqrt(q.size(-1))", "")],
    "not_shifted": [
        (
            "windows[rows, :-1], windows[rows, 1:]",
            "windows[rows, :-1], windows[rows, :-1]",
        ),
    ],
    "softmax_twice": [
        (
            "    shifted = logits - logits.max(-1, keepdim=True).values\n",
            "    p = logits.softmax(-1)\n"
            "    shifted = p - p.max(-1, keepdim=True).values\n",
        ),
    ],
    # The size that nn.Embedding starts with, where the two are tied.
    "start_too_large": [
        (
            "                nn.init.normal_(weight, std=std)\n",
            '                if name == "unembed.weight":\n'
            "                    std = 1.0\n"
            "                nn.init.normal_(weight, std=std)\n",
        ),
    ],
}
