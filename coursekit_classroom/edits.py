"""Edits of `minimal.py`: what a chapter would write differently.

Each is a list of pairs, old and new text, for the file as it stands after
chapter 12.  A page shows one with ``{lesson} Name`` and ``:edit: name``; its
cells run it with ``lesson.load(12, EDITS["name"])``.  Several go together
by adding their lists, as long as they change different lines.
"""

__all__ = ["EDITS"]

ROTATE = '''\
def rotate(x, end):
    """Rotate each pair of entries by its position; the last is end - 1."""
    speeds = 100_000 ** (-torch.arange(0, x.size(-1), 2) / x.size(-1))
    angles = torch.arange(end - x.size(-2), end)[:, None] * speeds
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]  # entries 0 and 1 are a pair
    rotated = a * cos - b * sin, a * sin + b * cos
    return torch.stack(rotated, -1).flatten(-2)'''

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
            "        self.vocabulary = sorted(set(text))\n",
            '        self.vocabulary = ["[MASK]", *sorted(set(text))]\n',
        ),
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
    # Chapter 15 makes four parts as SmolLM2 has them, one by one or together.
    "rmsnorm": [
        (
            "Shift a vector to mean 0, scale it to variance 1,",
            "RMSNorm: scale a vector to mean square 1,",
        ),
        (
            "x = x - x.mean(-1, keepdim=True)\n        variance = x",
            "mean_square = x",
        ),
        ("torch.sqrt(variance + 1e-5)", "torch.sqrt(mean_square + 1e-5)"),
    ],
    "swiglu": [
        (
            "Two matrices with a nonlinearity between,",
            "SwiGLU: a gate for each hidden unit,",
        ),
        (
            "self.hidden = nn.Linear(d_model, 4 * d_model, bias=False)",
            "d_ff = 8 * d_model // 3\n"
            "        self.gate = nn.Linear(d_model, d_ff, bias=False)\n"
            "        self.hidden = nn.Linear(d_model, d_ff, bias=False)",
        ),
        ("nn.Linear(4 * d_model, d_model,", "nn.Linear(d_ff, d_model,"),
        (
            "return self.output(nn.functional.gelu(self.hidden(x)))",
            "gate = nn.functional.silu(self.gate(x))\n"
            "        return self.output(gate * self.hidden(x))",
        ),
    ],
    "rope": [
        (
            "class MultiHeadAttention",
            f"{ROTATE}\n\n\nclass MultiHeadAttention",
        ),
        (
            "v = self.split_heads(self.value(memory))\n",
            "v = self.split_heads(self.value(memory))\n        q, k = rotate"
            '(q, past["length"]), rotate(k, past["length"])\n',
        ),
        (
            "        self.positions = nn.Embedding(context, d_model)"
            "  # chapter 3\n",
            "",
        ),
        (" + self.positions(torch.arange(start, end))", ""),
    ],
    "grouped_heads": [
        (
            "self.n_heads = n_heads\n",
            "self.d_head = d_model // n_heads\n        d_shared = "
            "max(1, n_heads // 3) * self.d_head  # 9 heads share 3\n",
        ),
        (
            "self.key = nn.Linear(d_model, d_model, bias=False)",
            "self.key = nn.Linear(d_model, d_shared, bias=False)",
        ),
        (
            "self.value = nn.Linear(d_model, d_model, bias=False)",
            "self.value = nn.Linear(d_model, d_shared, bias=False)",
        ),
        ("(-1, (self.n_heads, -1))", "(-1, (-1, self.d_head))"),
        (
            "past[self] = k, v\n",
            "past[self] = k, v\n"
            "        group = q.size(1) // k.size(1)  # who share one key\n"
            "        k = k.repeat_interleave(group, dim=1)\n"
            "        v = v.repeat_interleave(group, dim=1)\n",
        ),
    ],
    # Chapter 19 plants bugs: each runs, and is wrong.
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
# All four: the architecture of SmolLM2.
EDITS["smollm2"] = [
    edit
    for name in ("rmsnorm", "swiglu", "rope", "grouped_heads")
    for edit in EDITS[name]
]
