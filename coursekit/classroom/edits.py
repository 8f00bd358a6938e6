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
    # Every token sees all others, also those to its right.
    "no_mask": [
        (
            "        mask = causal_mask(ids.size(1), end)\n",
            "        mask = torch.ones(1, end, dtype=torch.bool)\n",
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
}
# All four: the architecture of SmolLM2.
EDITS["smollm2"] = [
    edit
    for name in ("rmsnorm", "swiglu", "rope", "grouped_heads")
    for edit in EDITS[name]
]
