"""The walk's lines of code: what `minimal.py` does at each of its steps."""

import re
from pathlib import Path

from coursekit_classroom import lesson

__all__ = ["LINES", "PLACES", "TITLES", "code"]

# What each step is called: its words stand once, in those of the live figure.
STRINGS = Path(__file__).parent / "js/figures/walk_strings.js"
TITLES = dict(
    re.findall(r'"walk\.(\w+)\.title": "(.+?)"', STRINGS.read_text("utf8"))
)
# For each chapter, the step of the walk that shows what it is about.
PLACES: dict[int, int | str] = {
    **{0: 12, 1: 1, 2: 2, 3: 3, 4: 5, 5: 6, 6: 8, 7: 9, 8: 10, 9: 11},
    **{10: "loss", 12: 12, 16: 11},
}
# For each step, parts of the file, and text that each line shown holds.
Lines = tuple[tuple[str, tuple[str, ...]], ...]
LINES: dict[int | str, Lines] = {
    1: (("BPETokenizer.encode", ("for word in", "ids +=")),),
    2: (("GPT.__init__", ("self.embedding =",)),),
    3: (("GPT.forward", ("self.positions(",)),),
    4: (
        ("Block.forward", ("y = self.norm_1",)),
        (
            "MultiHeadAttention.forward",
            ("self.query(x)", "self.key(memory)", "self.value(memory)"),
        ),
    ),
    5: (("attention", ("scores = q @ k",)),),
    6: (("attention", ("masked_fill", "softmax(-1)")),),
    7: (("attention", ("softmax(-1) @ v",)),),
    8: (
        (
            "MultiHeadAttention.forward",
            ("heads = attention", "return self.output"),
        ),
    ),
    9: (("Block.forward", ("x = x + self.attention",)),),
    10: (
        ("Block.forward", ("x = x + self.feed_forward",)),
        ("FeedForward.forward", ("return self.output",)),
    ),
    11: (("GPT.forward", ("for block in", "x = block(")),),
    12: (
        ("GPT.forward", ("return self.unembed",)),
        ("sample", ("softmax(-1)", "masked_fill", "multinomial")),
    ),
    "loss": (("cross_entropy", ("log_p =", "return -log_p")),),
    "model": (
        ("GPT.forward", ("self.positions(", "for block", "x = block(")),
    ),
    "block": (
        (
            "Block.forward",
            ("y = self.norm_1", "x = x + self.att", "x = x + self.feed"),
        ),
    ),
    "head": (("attention", ("scores = q @ k", "masked_fill", "softmax(-1)")),),
    "dot": (("attention", ("scores = q @ k",)),),
}


def code(step: int | str) -> str:
    """Lines of `minimal.py` that do what a step of the walk shows.

    Args:
        step: 1 to 12, or ``loss``, which step 12 shows with a true token, or
            a level of the zoom.

    Returns:
        The lines, without the indentation that all have and without
        comments.

    Raises:
        ValueError: if a part has no such line, or more than one.
    """
    excerpt = []
    for name, wanted in LINES[step]:
        body = lesson.part(name, lesson.LAST_CHAPTER).splitlines()
        # The lines of a docstring are no code.
        lines = [line for line in body[1:] if '"""' not in line]
        chosen = [_line(lines, text, name) for text in wanted]
        least = min(len(line) - len(line.lstrip()) for line in chosen)
        excerpt += [line[least:].split("  #")[0] for line in chosen]
    return "\n".join(excerpt)


def _line(lines: list[str], text: str, name: str) -> str:
    """The one line that holds a text."""
    matches = [line for line in lines if text in line]
    if len(matches) != 1:
        raise ValueError(
            "a line is named by text that stands in it alone: got "
            f"{len(matches)} lines with {text!r} in {name}. Change LINES."
        )
    return matches[0]
