"""What is drawn is what was computed, and can be read."""

import gzip
import importlib
import math
import re
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from coursekit_classroom import figures
from coursekit_classroom.figures import style
from coursekit_classroom.figures.vector import encode

Q = torch.tensor([[2.0, 1, 0, 0], [1, 0, 2, 1]])
K = torch.tensor([[1.0, 1, 2, 0], [0, 2, 1, 1]])
V = torch.tensor([[3.0, 0, 1, 0], [1, 1, 0, 2]])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def words(ax):
    """Everything that is written inside the axes."""
    return [text.get_text() for text in ax.texts]


def overlaps(texts, renderer):
    """Pairs of texts that lie on one another."""
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts]
    boxes = [(text, box) for text, box in boxes if text.strip()]
    return [
        (one, other)
        for i, (one, a) in enumerate(boxes)
        for other, b in boxes[:i]
        if a.overlaps(b)
    ]


def test_heatmap_writes_each_number_at_its_place():
    grid = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.125, 0.375]])
    ax = figures.heatmap(grid, ["one", "two"], ["a", "b", "c"])
    written = {t.get_position(): t.get_text() for t in ax.texts}
    assert written[(1, 0)] == "0.75"
    assert written[(0, 1)] == "0.50"
    assert len(written) == 6
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "two"]


def test_heatmap_is_symmetric_around_zero_only_if_signed():
    positive = figures.heatmap(torch.tensor([[0.5, 2.0]]))
    assert positive.collections[0].get_clim() == (0.0, 2.0)
    signed = figures.heatmap(torch.tensor([[-3.0, 2.0]]))
    assert signed.collections[0].get_clim() == (-3.0, 3.0)


def painted(ax):
    """Color and opacity of each cell of a heatmap."""
    ax.figure.draw_without_rendering()
    return [
        (to_hex(cell), round(cell[3], 2))
        for cell in ax.collections[0].get_facecolors()
    ]


def test_heatmap_says_a_number_by_the_opacity_of_a_color():
    """So a cell fits a light page and a dark one."""
    grid = torch.tensor([[0.0, 0.5, 1.0]])
    blue, red = (figures.COLORS[c].lower() for c in ("blue", "red"))
    plain = painted(figures.heatmap(grid, numbers=False))
    assert [a for _, a in plain] == pytest.approx([0, 0.5, 1], abs=0.01)
    assert {c for c, _ in plain} == {blue}
    # Numbers in the cells can be read: none is too full.
    assert painted(figures.heatmap(grid))[-1] == (blue, 0.6)
    names = [figures.heatmap(grid, color=c) for c in ("Oranges", "orange")]
    assert painted(names[0]) == painted(names[1])
    signed = painted(figures.heatmap(torch.tensor([[-2.0, 0, 2]])))
    assert [signed[0], signed[2]] == [(blue, 0.6), (red, 0.6)]
    assert signed[1][1] == pytest.approx(0, abs=0.01)
    # Beside a signed one, on its scale: red is positive here, too.
    beside = figures.heatmap(grid, limits=(-1, 1), color="RdBu_r")
    assert painted(beside)[-1] == (red, 0.6)


def test_a_large_heatmap_is_one_image_the_same_way_up():
    small = figures.heatmap(torch.rand(32, 31), numbers=False)
    large = figures.heatmap(torch.rand(33, 31), numbers=False)
    assert not small.images
    assert not large.collections
    for ax, rows in ((small, 32), (large, 33)):
        assert ax.get_ylim() == (rows - 0.5, -0.5)
        assert ax.get_xlim() == (-0.5, 30.5)
    # Nothing of it is opaque where there is nothing.
    assert large.images[0].cmap(0.0)[3] == 0


def test_bars_share_one_scale():
    ax = figures.bars(torch.tensor([0.1, 0.7, 0.2]), ["a", "b", "c"])
    assert [round(p.get_height(), 6) for p in ax.patches] == [0.1, 0.7, 0.2]
    assert ax.get_ylim() == (0, 1)


def test_intervals_span_the_seeds():
    samples = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    ax = figures.intervals([10, 20], samples)
    line, _, (bars,) = ax.containers[0]
    assert line.get_ydata().tolist() == [3.0, 5.0]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[1.0, 6.0], [5.0, 5.0]]


def test_attention_flow_shows_the_example_computed_by_hand():
    ax = figures.attention_flow(Q[1], K, V, ["animal", "it"], "it")
    written = words(ax)
    # Products, scores (√Dh is 2 here) and weights.
    for number in ("5", "3", "÷ √4", "2.50", "1.50", "0.731", "0.269"):
        assert number in written
    assert written.count("×") == 2  # a weight and its value
    # The mixed value, (2.46 0.27 0.73 0.54), closes the picture.
    mixed = [w for w in written if w in ("2.5", "0.3", "0.7", "0.5")]
    assert {"0.3", "0.7", "0.5"} <= set(mixed)


def test_attention_flow_can_be_computed_from_what_it_prints():
    """The weights sum to 1, and times the values they make the last row."""
    values = torch.tensor([[1.0, 0], [3, 2], [1, 2]])
    keys = torch.tensor([[0.0, -1], [0, 1], [2, -1]])
    query = torch.tensor([1.0, 2])
    ax = figures.attention_flow(query, keys, values, list("abc"), "c")
    weights = [float(w) for w in words(ax) if re.fullmatch(r"0\.\d{3}", w)]
    assert weights == [0.045, 0.768, 0.187]
    assert sum(weights) == pytest.approx(1)
    for column in values.T.tolist():
        mixed = sum(w * v for w, v in zip(weights, column, strict=True))
        assert f"{mixed:.2f}" in words(ax)
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_attention_steps_has_a_softmax_along_rows():
    scores, weights, output = figures.attention_steps(Q, K, V, ["a", "b"])
    panels = (scores, weights, output)
    first, second, third = (
        ax.collections[0].get_array().data for ax in panels
    )
    assert first.tolist() == [[1.5, 1.0], [2.5, 1.5]]
    assert second.sum(axis=1) == pytest.approx([1, 1])
    assert second.sum(axis=0) != pytest.approx([1, 1], abs=0.1)
    assert third[1] == pytest.approx([2.46, 0.27, 0.73, 0.54], abs=5e-3)


def test_attention_steps_hides_what_the_mask_hides():
    mask = torch.tensor([[True, False], [True, True]])
    names = ["a", "b"]
    scores, weights, output = figures.attention_steps(Q, K, V, names, mask)
    assert weights.collections[0].get_array().data[0].tolist() == [1, 0]
    shown = [t.get_text() for t in weights.texts if t.get_visible()]
    assert sorted(shown[:3]) == ["0.27", "0.73", "1.00"]
    hatched = [p for p in scores.patches if p.get_hatch()]
    assert [p.get_xy() for p in hatched] == [(0.5, -0.5)]
    assert not output.patches
    # The control: without a mask nothing is hatched.
    free = figures.attention_steps(Q, K, V, names)
    assert not any(ax.patches for ax in free)


def test_projections_shows_each_product_below_its_matrix():
    """(2 1 0 −1) times each matrix, on paper."""
    x = torch.tensor([2.0, 1, 0, -1])
    matrices = {
        "query": torch.tensor([[1.0, 0], [0, 1], [5, 5], [0, 2]]),
        "value": torch.tensor([[0.0], [7], [9], [4]]),
    }
    ax = figures.projections(x, matrices, ["x", "Q", "V"])
    bottom = [
        t.get_text()
        for t in sorted(ax.texts, key=lambda t: t.get_position()[0])
        if t.get_position()[1] == -5
    ]
    assert bottom == ["2", "−1", "3"]
    assert {"x", "Q", "V", "query", "value"} <= set(words(ax))
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


@pytest.mark.parametrize("tokens", [["animal", "it"], ["because", "tired"]])
def test_no_text_lies_on_another(tokens):
    flow = figures.attention_flow(Q[1], K, V, tokens, "it")
    renderer = flow.figure.canvas.get_renderer()
    flow.figure.draw_without_rendering()
    assert not overlaps(flow.texts, renderer)
    # The check sees an overlap if there is one.
    flow.text(*flow.texts[0].get_position(), "x", ha="center")
    assert overlaps(flow.texts, renderer)


def test_mosaic_gives_axes_by_letter():
    axes = figures.mosaic("ab;cc", 3.0, height_ratios=[1, 2])
    assert sorted(axes) == ["a", "b", "c"]
    assert axes["a"].figure.get_size_inches().tolist() == [figures.WIDTH, 3.0]


def test_two_lines_differ_in_more_than_color():
    ax = figures.intervals([1, 2], torch.rand(3, 2), "one")
    figures.intervals([1, 2], torch.rand(3, 2), "two", ax, "orange", "--")
    one, two = (container[0] for container in ax.containers)
    assert one.get_linestyle() != two.get_linestyle()
    assert one.get_marker() != two.get_marker()


def test_png_is_small_and_keeps_the_colors():
    figure, (ax,) = figures.new_figure(2.0)
    figures.bars(torch.tensor([0.2, 0.8]), ["a", "b"], ax=ax, color="orange")
    usual, ours = BytesIO(), figures.png(figure)
    figure.savefig(usual, format="png", bbox_inches="tight")
    assert len(ours) < 0.6 * len(usual.getvalue())
    before, after = (
        np.asarray(Image.open(BytesIO(b)).convert("RGB"), dtype=int)
        for b in (usual.getvalue(), ours)
    )
    assert before.shape == after.shape
    assert np.abs(before - after).mean() < 1


def rungs(*losses):
    """Rungs a, b, … as results/ladder.json has them."""
    return [
        {"name": n, "label": f"+ {n}", "loss": {"mean": x, "interval": 0.1}}
        for n, x in zip("abcdefg", losses, strict=False)
    ]


def test_ladder_hides_the_rungs_above_unless_told():
    ax = figures.ladder(rungs(3.0, 2.0, 1.0), current="b")
    assert [bar.get_width() for bar in ax.patches] == [3.0, 2.0]
    assert words(ax) == ["3.00", "2.00  ◀", "?"]
    revealed = figures.ladder(rungs(3.0, 2.0, 1.0), "b", reveal=True)
    assert [bar.get_width() for bar in revealed.patches] == [3.0, 2.0, 1.0]


def test_ladder_marks_the_current_rung_by_more_than_color():
    ax = figures.ladder(rungs(3.0, 2.0, 1.0), current="b")
    weights = [label.get_fontweight() for label in ax.get_yticklabels()]
    assert weights == ["normal", "bold", "normal"]
    plain = figures.ladder(rungs(3.0, 2.0, 1.0))
    assert not any("◀" in word for word in words(plain))


def test_ladder_runs_downward_and_shows_its_intervals():
    ax = figures.ladder(rungs(3.0, 2.0), marks={"counting": 1.7})
    bottom, top = ax.get_ylim()
    assert bottom > top
    segments = [s for c in ax.collections for s in c.get_segments()]
    ends = [sorted(round(x, 6) for x in s[:, 0]) for s in segments]
    assert ends == [[2.9, 3.1], [1.9, 2.1]]
    assert "counting, 1.70" in words(ax)


def test_an_unknown_place_is_refused():
    with pytest.raises(ValueError, match="'zzz'"):
        figures.ladder(rungs(3.0), current="zzz")


def test_pipeline_is_read_from_top_to_bottom():
    stages = {"text": "7 letters", "tokens": "3 numbers", "logits": "V"}
    ax = figures.pipeline(stages, loop="again")
    heights = {t.get_text(): t.get_position()[1] for t in ax.texts}
    assert heights["text"] < heights["tokens"] < heights["logits"]
    assert heights["3 numbers"] == heights["tokens"]
    bottom, top = ax.get_ylim()
    assert bottom > top
    assert "again" in words(ax)
    assert "again" not in words(figures.pipeline(stages))


def test_token_rows_stand_in_columns():
    ax = figures.token_rows({"input": "abc", "target": "bcd"}, diagonals=True)
    at = {}
    for text in ax.texts:
        if text.get_text():
            at.setdefault(text.get_text(), []).append(text.get_position())
    assert at["b"] == [(1, 0.0), (0, -1.5)]
    assert at["d"] == [(2, -1.5)]
    arrows = sum(not text.get_text() for text in ax.texts)
    assert arrows == 3 + 2  # one down a column, and the diagonals between
    plain = figures.token_rows({"input": "abc", "target": "bcd"})
    assert sum(not text.get_text() for text in plain.texts) == 3


def test_next_tokens_asks_for_the_token_after_each_prefix():
    ax = figures.next_tokens("abcd", 3)
    asked = [t for t in ax.texts if t.get_weight() == "bold"][:3]
    assert [(t.get_text(), *t.get_position()) for t in asked] == [
        ("b", 1, 0), ("c", 2, -1), ("d", 3, -2),
    ]  # fmt: skip
    widths = [round(box.get_width(), 2) for box in ax.patches]
    assert widths[::3] == [0.92, 1.92, 2.92]  # what is read, from the left
    rows = [t.get_text() for t in ax.texts if t.get_position()[1] == -1]
    assert rows == list("abcd")  # the same text in each row


def test_curves_label_their_references():
    lines = {"one": ([0, 1], [3.0, 2.0]), "two": ([0, 1], [3.0, 2.5])}
    ax = figures.curves(lines, {"high": 4.0, "low": 1.0})
    styles = {line.get_linestyle() for line in ax.lines[:2]}
    assert len(styles) == 2
    heights = {line.get_ydata()[0] for line in ax.lines[2:]}
    assert heights == {4.0, 1.0}
    assert words(ax) == ["high", "low"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [*lines]
    assert figures.curves({"one": lines["one"]}).get_legend() is None


def test_who_sees_whom_crosses_only_the_future():
    """Told apart by a cross as well as by color; S − T shifts the line."""
    sees = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]])
    ax = figures.who_sees_whom(sees > 0, ["a", "b", "c"], list("vwxyz"), "x")
    # 3 queries, 5 keys: query 0 stands at key 2.
    assert words(ax) == []
    filled = [p.get_facecolor()[:3] != (1, 1, 1) for p in ax.patches]
    assert filled == (sees > 0).flatten().tolist()
    square = figures.who_sees_whom(sees[:, :3] > 0)
    crosses = [t.get_position() for t in square.texts]
    assert crosses == [(1, 0), (2, 0), (2, 1)]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "c"]
    assert not square.get_yticklabels()


def test_clocks_show_the_sine_and_cosine_of_each_angle():
    angles = np.array([[0.0, 1.0, 2.0], [0.0, 0.1, 3.0]])
    ax = figures.clocks(angles, ["fast", "slow"], ["0", "1", "7"])
    assert len(ax.lines) == len(ax.patches) == 6
    hands = iter(ax.lines)
    for r in range(2):
        for c in range(3):
            (x0, x1), (y0, y1) = next(hands).get_data()
            assert (x0, y0) == (c, -r)
            tip = math.sin(angles[r, c]), math.cos(angles[r, c])
            hand = (x1 - x0) / 0.4, (y1 - y0) / 0.4
            assert hand == pytest.approx(tip, abs=1e-12)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["fast", "slow"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "7"]
    assert words(ax) == []


def test_clocks_mark_gaps_and_spell_out_one_pair():
    angles = np.array([[0.0, 1.0, 100.0], [0.0, 2.5, 10.0]])
    ax = figures.clocks(
        angles, "ab", ["0", "1", "9"], gaps=[1], labeled=(0, 1)
    )
    # sin 1 and cos 1, from a table.
    label = "this hand: (sin 1, cos 1) = (0.84, 0.54)"
    assert words(ax) == ["…", label]
    assert [c.get_segments()[0][0][0] for c in ax.collections] == [1.5]
    (x, y), low = ax.texts[1].xy, ax.get_ylim()[0]
    assert (x, y) == (1, 0.4)  # the top of the dial that is labeled
    assert low < -1.4  # no dial is cut off


def test_token_cuts_break_lines_between_tokens():
    rows = {"one": list("abcdefg"), "two": ["abc", " de", "fghij"]}
    ax = figures.token_cuts(rows, width=5)
    assert len(ax.patches) == 7 + 3
    assert [round(p.get_width() + 0.12) for p in ax.patches[7:]] == [3, 3, 5]
    at = {t.get_text(): t.get_position() for t in ax.texts}
    assert at["two"][1] > at["one"][1]  # the axis points down
    # " de" does not fit beside "abc", and stands at the start of a line.
    assert at["␣"][0] == 0.5
    assert at["d"][0] == 1.5
    assert at["a"][1] < at["d"][1] < at["j"][1]
    top, bottom = sorted(ax.get_ylim())
    assert top < at["one"][1]
    assert at["j"][1] < bottom


def test_svg_says_in_words_what_it_shows_and_is_the_same_twice():
    one, other = (figures.bars(torch.tensor([0.2, 0.8])) for _ in range(2))
    one.set_title("a\x01東 & b")  # no XML holds the first, no font the second
    other.set_title("a\x01東 & b")
    given = ("p", "Two <bars>", "The second is\x0b taller.")
    text = figures.svg(one.figure, *given)
    assert text == figures.svg(other.figure, *given)
    root = ElementTree.fromstring(text)
    assert root.get("aria-labelledby") == "p-title p-text"
    title, described = root[:2]
    assert (title.get("id"), title.text) == ("p-title", "Two <bars>")
    assert described.get("id") == "p-text"
    assert described.text == "The second is\ufffd taller."
    assert "a\ufffd東 &amp; b</text>" in text
    assert "<metadata" not in text


def test_the_indentation_of_code_is_kept():
    ax = figures.new_figure()[1][0]
    ax.text(0, 0, "y = (a\n     + b c)", family="monospace")
    ax.text(0, 1, "a b")
    texts = ElementTree.fromstring(encode(ax.figure)).iter()
    style = {t.text: t.get("style", "") for t in texts if t.text}
    assert "white-space:pre" in style["     + b c)"]
    assert "white-space" not in style["a b"] + style["y = (a"]


def test_mixtures_are_cut_in_proportion_to_the_weights():
    ax = figures.mixtures(
        {
            "ab": [[{"a": 0.7, "b": 0.3}], [{"a": 1.0}, {"b": 1.0}]],
            "ba": [[{"b": 0.7, "a": 0.3}], [{"b": 1.0}, {"a": 1.0}]],
        },
        ["one", "two"],
    )
    widths = [round(p.get_width(), 6) for p in ax.patches if p.get_fill()]
    assert widths == [7, 3, 4.7, 4.7, 3, 7, 4.7, 4.7]
    # A sum has no order: the first word of the first row comes first.
    assert [w for w in words(ax) if w[0] == "0"] == [
        *("0.7\na", "0.3\nb", "0.3\na", "0.7\nb")
    ]


def test_heads_are_added_where_their_entries_belong():
    x = torch.tensor([1.0, 1, -1, -1])
    heads = [torch.tensor([0.5, 2.25]), torch.tensor([0.0, -1.0])]
    ax = figures.heads_added(x, heads, ["first", "second"])
    at = {}
    for text in ax.texts:
        at.setdefault(text.get_position()[1], []).append(text.get_text())
    assert at[0] == ["first", "0.50", "2.25"]
    assert at[-4] == ["their sum", "1.50", "3.25", "−1", "−2"]
    left = [p.get_x() for p in ax.patches if round(p.get_y(), 2) == -1.5]
    assert min(left) == 3.2  # the second head's entries stand at the right


def test_split_and_merge_keeps_the_future_out():
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]])
    q, found = torch.arange(12.0).view(3, 4), torch.rand(2, 3, 2)
    ax = figures.split_and_merge(q, [weights, weights], list(found))
    blue = matplotlib.colors.to_rgb(figures.COLORS["blue"])
    cells = [p for p in ax.patches if p.get_facecolor()[:3] == blue]
    assert sum(p.get_fill() for p in cells) == 2 * 6
    assert [words(ax).count(w) for w in ("9", "10", "11")] == [2, 2, 2]
    assert words(ax).count(f"{found[1, 2, 0]:.2f}") == 2


TABLE = torch.tensor([[3.0, 0], [0, 5], [2, 7]])


def test_id_neighbors_number_their_tokens():
    strips = [(4, ["a", " b", "c"]), (8, ["d", "e", "f"])]
    ax = figures.id_neighbors(strips)
    at = {t.get_text(): t.get_position() for t in ax.texts}
    assert at["4"][0] == at["a"][0]
    assert at["9"][0] == at["e"][0]
    assert at["9"][1] < at["5"][1]
    bold = {t.get_text() for t in ax.texts if t.get_weight() == "bold"}
    assert bold == {"␣b", "e"}


def test_lookup_leads_from_each_id_to_its_row():
    ax = figures.lookup([2, 0, 2], ["a", "b", "c"], TABLE)
    ways = [line.get_ydata() for line in ax.lines]
    assert [list(way) for way in ways] == [
        *([0, -2], [-2, 0]),
        *([-1, 0], [0, -1]),
        *([-2, -2], [-2, -2]),
    ]
    numbers = [w for w in words(ax) if w in "357"]
    # Three rows of the matrix, then the rows that were selected.
    assert sorted(numbers) == sorted(["3", "5", "7", "7", "3", "7"])


def test_norm_steps_shows_layer_norm_as_worked_out_by_hand():
    """(1 7 7 9): mean 6, then standard deviation 3."""
    axes = figures.norm_steps(torch.tensor([1.0, 7, 7, 9]))
    shown = [[p.get_width() for p in ax.patches[:4]] for ax in axes]
    assert shown[0] == [1, 7, 7, 9]
    assert shown[1] == [-5, 1, 1, 3]
    assert shown[2] == pytest.approx([-5 / 3, 1 / 3, 1 / 3, 1])
    assert [ax.get_title("left")[-4:] for ax in axes] == ["6.00"] * 2 + [
        "3.00"
    ]
    assert "−1.67" in words(axes[2])
    assert "1.00" in words(axes[2])


def test_residual_stream_adds_and_norms_only_the_branch():
    start, added = torch.tensor([1.0, -2]), torch.tensor([0.25, 3])
    parts = [
        figures.Part("first", added),
        figures.Part("second", reads=torch.tensor([9.5, -9.5])),
    ]
    ax = figures.residual_stream(start, parts, ["below", "above"])
    written = {"1", "−2", "0.25", "3.00", "1.25", "1.00", "9.5", "−9.5"}
    assert written | {"below", "above", "first", "second"} <= set(words(ax))
    assert words(ax).count("+") == 2
    assert words(ax).count("layer norm, LN") == 1
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_sum_over_heads_has_a_block_for_each():
    w_o = torch.arange(16.0).view(4, 4)
    ax = figures.sum_over_heads([torch.tensor([0.5, 1.5])] * 2, w_o)
    assert words(ax).count("14") == words(ax).count("9") == 2
    assert words(ax).count("1.50") == 4


def test_one_hot_product_is_the_row():
    ax = figures.one_hot_product(1, ["a", "b", "c"], TABLE)
    bottom = [t.get_text() for t in ax.texts if t.get_position()[1] == -4]
    assert bottom == ["0", "5", "the row of b"]
    upright = [t.get_text() for t in ax.texts if t.get_position()[0] == 0.5]
    assert upright[1:] == ["0", "1", "0"]


def test_unembedding_compares_with_rows():
    """(1 2) with the rows of the table, on paper: 3, 10, 16."""
    names, table = ["a", "b", "c"], torch.cat([TABLE, 0 * TABLE], dim=1)
    x = torch.tensor([1.0, 2, 8, 9])
    ax = figures.unembedding(x, "x", table, names)
    assert {"3", "10", "16", "1.00"} <= set(words(ax))
    # The control: its columns would give 7 and 24.
    assert not {"24"} & set(words(ax))
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_remaining_spans_the_seeds():
    ax = figures.remaining({"a": torch.tensor([0.25, 0.75])})
    assert [bar.get_width() for bar in ax.patches] == [0.5]
    segments = [s for c in ax.collections for s in c.get_segments()]
    assert [s[:, 0].tolist() for s in segments] == [[0.25, 0.75]]
    assert words(ax) == ["0.50"]


def test_both_orders_fill_one_bag():
    vectors = {"dog": [2, 0], "bites": [0, 1]}
    ax = figures.bag_of_vectors(["dog", "bites"], ["bites", "dog"], vectors)
    assert words(ax).count("dog") == words(ax).count("bites") == 2
    assert [w for w in words(ax) if w.isdigit()] == ["2", "0", "0", "1"]
    # Each arrow ends beside its own vector.
    tips = [t.xy[1] for t in ax.texts if hasattr(t, "arrow_patch")]
    assert tips == [0, -1, -1, 0]


def test_added_positions_shows_each_sum():
    embedding = torch.tensor([[1.0, -1], [0, 2]])
    positions = torch.tensor([[0.0, 5], [3, 0]])
    ax = figures.added_positions(["the", "cat"], embedding, positions)
    rows = {}
    for text in sorted(ax.texts, key=lambda t: t.get_position()[0]):
        rows.setdefault(text.get_position()[1], []).append(text.get_text())
    assert rows[0][1:] == ["1", "−1", "+", "0", "5", "=", "1", "4", " "]
    assert rows[-1][1:] == ["0", "2", "+", "3", "0", "=", "3", "2", " "]


def test_low_rank_are_to_scale_and_counted():
    ax = figures.low_rank(100, 20)
    areas = [p.get_width() * p.get_height() for p in ax.patches]
    assert areas == pytest.approx([1, 0.2, 0.2])
    counts = {w.split("\n")[0] for w in words(ax) if "\n" in w}
    assert counts == {"10,000", "4,000"}
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_turned_back_finds_the_position_before():
    ax = figures.turned_back(position=2, n_positions=4)
    below = {
        t.get_position()[0]: t
        for t in ax.texts
        if t.get_position()[1] == -0.98
    }
    assert [below[t].get_text() for t in range(4)] == [
        "0.54",
        "1.00",
        "0.54",
        "−0.42",
    ]
    bold = [t.get_text() for t in below.values() if t.get_weight() == "bold"]
    assert bold == ["1.00"]


def test_read_map_marks_what_each_position_finds():
    ax = figures.read_map(torch.tensor([0, 0, 1]), ["a", "b", "c"], "order")
    marked = [p.get_xy() for p in ax.patches if p.get_fill()]
    assert marked == [(-0.5, -0.5), (-0.5, 0.5), (0.5, 1.5)]
    assert words(ax) == ["a", "a", "b"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row on top


def test_position_rows_writes_each_number():
    grids = {
        "right": torch.tensor([[0, 1], [0, 1]]),
        "ids": np.array([[3, 2]]),
    }
    right, ids = figures.position_rows(grids)
    assert words(right) == ["0", "1", "0", "1"]
    assert words(ids) == ["3", "2"]
    assert ids.get_title("left") == "ids"


def test_mask_effect_hides_before_the_softmax():
    scores = torch.tensor([[0.0, 3.0], [-1.0, 1.0]])
    mask = torch.tensor([[True, False], [True, True]])
    left, right = figures.mask_effect(scores, mask, ["a", "b"], row=0)
    assert words(left)[:4] == ["0.00", "−∞", "−1.00", "1.00"]
    assert words(right)[:4] == ["1.00", "0.00", "0.12", "0.88"]
    # The control: without a mask the first row's weight goes to the later.
    free = figures.mask_effect(scores, None, ["a", "b"], row=0)[1]
    assert words(free)[:2] == ["0.05", "0.95"]


def test_prefixes_shows_each_row_no_more_than_its_prefix():
    ax = figures.prefixes(["the", "cat"], ["cat", "sat"])
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[0, 0], at[1, 0], at[3, 0]] == ["the", "cat", "cat"]
    assert [at[0, -1], at[1, -1], at[3, -1]] == ["the", "cat", "sat"]
    assert seen(ax) - {(3, 0), (3, -1)} == {(0, 0), (0, -1), (1, -1)}


def seen(ax):
    """At which places a filled box stands."""
    return {
        (round(box.get_x() + 0.46), round(box.get_y() + 0.36))
        for box in ax.patches
        if box.get_fill()
    }


def test_causal_rows_hide_what_comes_later():
    free, causal = figures.causal_rows("abc")
    square = {(j, -i) for i in range(3) for j in range(3)}
    assert seen(free) == square
    assert seen(causal) == {(j, y) for j, y in square if j <= -y}
    gray = {t.get_position() for t in causal.texts
            if t.get_color() == figures.COLORS["gray"]}  # fmt: skip
    assert gray == square - seen(causal)


def test_window_and_prefix_differ_in_what_comes_later():
    ax = figures.window_and_prefix("abcd", 1)
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[x, 0] for x in (0, 1, 2, 3, 5)] == list("abcdc")
    assert [at[x, -1] for x in (0, 1, 2, 3, 5)] == ["a", "b", "", "", "c"]
    red = [
        box.get_x() + 0.46
        for box in ax.patches
        if box.get_facecolor()[:3] == to_rgb(figures.COLORS["red"])
    ]
    assert red == pytest.approx([2, 5, 5])  # the answer, and two targets


def test_block_lists_lead_to_the_objects_that_they_name():
    distinct, same, plain = figures.block_lists()
    ends = [
        [t.xy[1] for t in ax.texts if not t.get_text()]
        for ax in (distinct, same, plain)
    ]
    assert ends == [[0, 1, 2], [1, 1, 1], [0, 1, 2]]
    lines = [{b.get_linestyle() for b in ax.patches} for ax in (same, plain)]
    assert lines == [{"-"}, {":"}]
    assert [len(ax.patches) for ax in (distinct, same, plain)] == [3, 1, 3]


def test_verdicts_says_passed_failed_and_not_asked():
    ax = figures.verdicts({"x": [True, False, None]}, ["a", "b", "c"])
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[0, 0], at[1, 0], at[2, 0]] == ["yes", "NO", "–"]
    assert len(ax.patches) == 2  # what was not asked has no color


def test_choices_made_are_stairs_on_which_the_chosen_token_is_carried():
    steps = [
        [("a", 0.6), ("b", 0.004)],
        [("c", 0.25)],
    ]
    ax = figures.choices_made(["x", "y"], steps, n_tokens=1002)
    bold = [t.get_text() for t in ax.texts if t.get_weight() == "bold"]
    assert bold == ["a", "a", "c", "c"]  # chosen, then at the text's end
    at = {
        (t.get_text(), -round(t.get_position()[1])): t.get_position()[0]
        for t in ax.texts
    }
    # Each row of text has one token more than the one above it.
    rows = [[w for w in "xyabc" if (w, y) in at] for y in range(3)]
    assert rows == [list("xyab"), list("xyac"), list("xyac")]
    # A box for each token of the text, and for the token that is taken.
    assert len(ax.patches) == 2 * (2 + 1 + 3 + 1 + 4)
    assert at["x", 0] == at["x", 1] == at["x", 2] < at["y", 0] < at["a", 0]
    assert at["c", 2] == at["a", 2] + 1
    # What is printed in a row makes 100, and the others are counted.
    assert {"60.0", "0.4", "1,000 others\n39.6"} <= set(words(ax))
    assert {"25.0", "1,001 others\n75.0"} <= set(words(ax))
    # An arrow leads from each chosen box to its place, a row further down.
    arrows = [t for t in ax.texts if getattr(t, "arrow_patch", None)]
    for y, (arrow, token) in enumerate(zip(arrows, "ac", strict=True)):
        assert arrow.xy[0] == at[token, y + 1]
        assert -y - 1 < arrow.xy[1] < arrow.get_position()[1] < -y
    ax.figure.draw_without_rendering()
    told = [t for t in ax.texts if t not in arrows]
    assert not overlaps(told, ax.figure.canvas.get_renderer())


def test_temperature_bars_share_one_scale():
    p = torch.tensor([0.25, 0.75])
    tiny = torch.tensor([0.99996, 0.00004])
    axes = figures.temperature_bars(["a", "b"], {"1": p, "½": tiny})
    assert [words(ax) for ax in axes] == [
        ["0.250", "0.750"],
        ["1.000", "0.00004"],  # small, but not 0
    ]
    assert len({ax.get_xlim() for ax in axes}) == 1
    assert [box.get_width() for box in axes[0].patches] == p.tolist()
    least = torch.tensor([1 - 1e-9, 1e-9, 0.0], dtype=torch.float64)
    (ax,) = figures.temperature_bars(["a", "b", "c"], {"0.05": least})
    assert words(ax) == ["1.000", "< 0.000001", "0.000"]


def test_kept_mass_keeps_the_token_that_crosses():
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    ax = figures.kept_mass(["a", "b", "c", "d"], p, 0.6)
    written = words(ax)
    assert [w for w in written if w[:1] in "ab" and "  " in w] == [
        "a  0.500",
        "b  0.300",
        "a  0.625",
        "b  0.375",
    ]
    assert "c, d" in written
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(hatched) == 2


def test_tail_curves_count_the_tokens_that_are_kept():
    lines = {
        "sure": torch.tensor([0.95, 0.03, 0.02]),
        "not": torch.tensor([0.4, 0.35, 0.25]),
    }
    ax = figures.tail_curves(lines, 0.9, 2)
    assert {"sure\n1 token", "not\n3 tokens", "top-k 2"} <= set(words(ax))
    assert len({line.get_linestyle() for line in ax.lines}) > 2


def test_sampled_words_underlines_what_is_invented():
    lines = [[("the ", False), ("budge", True)], [("end", False)]]
    ax = figures.sampled_words({"hot": lines})
    assert words(ax) == ["hot", "the ", "budge", "end"]
    [line] = ax.lines
    assert list(line.get_xdata()) == [4, 9]
    long = [("word", False), (" ", False)] * 20
    ax = figures.sampled_words({"hot": [long]})
    rows = {t.get_position()[1] for t in ax.texts}
    assert len(rows) == 4  # a label, and three lines of at most 48


def test_key_changes_tells_kept_from_new():
    rows = {"mask": [1e-15, None], "none": [0.25, None]}
    ax = figures.key_changes(["a", "b"], rows)
    assert words(ax) == ["a", "b", "mask", "0", "new", "none", "0.25", "new"]
    strength = [patch.get_alpha() for patch in ax.patches]
    assert strength[0] < min(strength[1:])


def test_cache_steps_computes_one_row():
    axes = figures.cache_steps([2, 3])
    filled = [
        sum(patch.get_facecolor()[3] > 0 for patch in ax.patches)
        for ax in axes
    ]
    # Weights, keys and values: 3 + 4 and 6 + 6; then one row of each.
    assert filled == [7, 12, 4, 5]
    kept = [len(ax.patches) - n for ax, n in zip(axes, filled, strict=True)]
    assert kept == [0, 0, 2, 4]


def test_padded_prompts_counts_real_tokens():
    ax = figures.padded_prompts([3, 1])
    numbers = {t.get_position(): t.get_text() for t in ax.texts}
    assert numbers[2, 0] == "2"
    assert numbers[2, -1] == "0"
    assert (0, -1) not in numbers


def test_times_less_shows_the_last_ratios():
    runs = [{"median": m, "lowest": m - 1, "highest": m + 1} for m in (2, 12)]
    ax = figures.times_less([16, 1024], [6.0, 535.4], runs)
    assert words(ax) == ["FLOPs: 535 times", "seconds: 12 times"]


def test_beam_tree_is_thicker_where_more_probable():
    tree = {"": {"a": 0.6, "b": 0.4}, "a": {"c": 1.0}, "b": {"d": 0.9}}
    ax = figures.beam_tree(tree, "start")
    wide = [line.get_linewidth() for line in ax.lines]
    labels = [w for w in words(ax) if w[0].isdigit()]
    assert labels == ["1", "0.9", "0.6", "0.4"]
    assert wide == sorted(wide, reverse=True)


def test_paths_begin_open_and_end_filled():
    trails = {
        name: torch.tensor([[0.0, i], [1.0, i], [2.0, -i]])
        for i, name in enumerate("abcd")
    }
    groups = {"rest": torch.tensor([[-1.0, -1], [-3, -1]])}
    ax = figures.paths(trails, groups, 4)
    open_marks = [x for x in ax.lines if x.get_markerfacecolor() == "none"]
    assert [mark.get_ydata()[0] for mark in open_marks] == [0, 1, 2, 3]
    styles = {x.get_linestyle() for x in ax.lines if len(x.get_xdata()) == 3}
    assert styles == {"-", "--"}  # told apart by more than color
    assert set(words(ax)) == {"rest", *"abcd"}
    where = {t.get_text(): tuple(getattr(t, "xy", ())) for t in ax.texts}
    assert where["d"] == (2.0, -3.0)


def test_distances_are_measured_from_the_first_word():
    table = torch.tensor([[3.0, 4], [0, 0], [0, 1], [0, 0], [6, 8]])
    ax = figures.distances(
        {"one": table, "two": 0 * table}, [*"abcde"], [*"badc"]
    )
    marks = {
        (mark.get_marker(), mark.get_color(), y): list(mark.get_xdata())
        for mark in ax.lines
        for y in mark.get_ydata()
        if mark.get_marker() in [*"osx"]
    }
    blue, orange = figures.COLORS["blue"], figures.COLORS["orange"]
    assert marks["x", figures.COLORS["gray"], 0] == [10]
    assert [marks[look, blue, 0] for look in "os"] == [[0], [5]]
    assert [marks[look, orange, 0] for look in "os"] == [[0], [1]]
    assert {x for (_, _, y), [x] in marks.items() if y == -1} == {0}
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_collapse_names_each_line():
    falls, stays = [1.0, 1e-9, 1e-15], [5.0, 6, 7]
    gradients = {"query": falls, "key": falls, "value": stays,
                 "FFN, in": stays, "FFN, out": [50.0] * 3}  # fmt: skip
    alike = {"both": [[0, 0.1, 0.2]], "none": [[0.5, 1, 1], [0.6, 1, 1]]}
    top, low = figures.collapse(gradients, alike, "title")
    assert words(top) == ["value, FFN", "query, key"]
    assert [list(line.get_ydata()) for line in top.lines] == [falls] * 2
    assert top.collections[0].get_paths()[0].get_extents().ymax == 50
    assert len(low.lines) == 3
    assert words(low) == ["both", "none"]


def test_neighbor_lists_stand_in_columns():
    lists = {"his": (["my", "thy"], [",", "the"]), "in": (["of"], ["."])}
    ax = figures.neighbor_lists(lists, ["text", "shuffled"])
    at = {t.get_text(): t.get_position() for t in ax.texts}
    assert at["my   thy"][0] == at["of"][0] == at["text"][0]
    assert at[",   the"][0] == at["."][0] == at["shuffled"][0]
    assert at["of"][1] == at["in"][1] < at["his"][1]


# -- in the page -------------------------------------------------------------
CSS = Path(__file__).parents[2] / "book" / "_static" / "course.css"
GROUNDS = {"light": "#ffffff", "dark": "#121212"}


def luminance(color):
    """Relative luminance, as WCAG defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
        for p in parts
    ]
    return sum(
        w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def properties(css, prefix):
    """Custom properties that begin so, on a light page and on a dark one."""
    light, dark = re.findall(
        r"^ *(?::root|html\[data-theme=\"dark\"\]) \{([^}]*--fig-[^}]*)\}",
        css,
        re.MULTILINE,
    )
    return [
        dict(re.findall(rf"--{prefix}-([\w-]+):\s*([^;]+);", part))
        for part in (light, dark)
    ]


def test_the_page_has_every_color_with_enough_contrast():
    light, dark = properties(CSS.read_text("utf8"), "fig")
    names = {n for n in figures.COLORS if n != "black"} | {"ink", "paper"}
    assert set(light) == set(dark) == names
    for name, color in figures.COLORS.items():
        assert light["ink" if name == "black" else name] == color.lower()
    for theme, found in (("light", light), ("dark", dark)):
        for name in names - {"paper"}:
            assert contrast(found[name], GROUNDS[theme]) >= 3, (theme, name)
    # Control: two of Okabe and Ito's own colors are too pale.
    assert contrast("#56b4e9", "#ffffff") < 3 < contrast("#000000", "#ffffff")
    assert contrast("#e69f00", "#ffffff") < 3


def test_a_role_has_one_color_in_still_and_in_live_figures():
    roles, _ = properties(CSS.read_text("utf8"), "role")
    ink = {"black": "ink"}
    colors = {r: ink.get(c, c) for r, c in figures.ROLES.items()}
    assert roles == {r: f"var(--fig-{c})" for r, c in colors.items()}
    assert len(set(colors.values())) == len(colors) == 9
    live = Path(figures.__file__).parents[1] / "live/js/figures/live.css"
    asked = re.findall(
        r"var\(--(role|fig)-(\w+), (#\w+)\)", live.read_text("utf8")
    )
    assert len(asked) >= 4
    for kind, name, color in asked:
        name = figures.ROLES[name] if kind == "role" else name
        assert color == figures.COLORS[name].lower()


def test_encoded_small_without_names_ground_or_chance():
    """A third less than matplotlib's own, at least, after compression."""
    ax = figures.bars(torch.tensor([0.2, 0.8]), ["a$", "b"])
    ax.set_title("mono", family="monospace")
    text = encode(ax.figure)
    assert text == encode(ax.figure)
    usual = StringIO()
    with plt.rc_context({"svg.fonttype": "none"}):
        ax.figure.savefig(usual, format="svg", bbox_inches="tight")
    before = len(gzip.compress(usual.getvalue().encode()))
    assert len(gzip.compress(text.encode())) < 0.7 * before
    for found in ("<style", "<metadata", "DejaVu", "#ffffff", "\n"):
        assert found in usual.getvalue()
        assert found not in text
    root = ElementTree.fromstring(text)
    written = {e.text for e in root.iter() if e.tag.endswith("}text")}
    assert {"a$", "b", "mono", "0.2"} <= written
    assert text.count("font-family:monospace") == 1
    ids = {e.get("id") for e in root.iter() if e.get("id")}
    assert ids == set(re.findall(r"#(fig-\d+)", text))
    assert not re.search(r"\d\.\d{5}", text)


def test_what_is_painted_stays():
    """Control: only grounds and empty groups are taken out."""
    ax = figures.heatmap(torch.tensor([[0.5, 1.0]]), ["r"], ["a", "b"])
    ax.add_patch(figures.Rectangle((0, 0), 1, 1, hatch="//", fill=False))
    root = ElementTree.fromstring(encode(ax.figure))
    drawn = [e for e in root.iter() if e.tag.endswith(("path", "use"))]
    fills = [e.get("style", "") for e in drawn]
    assert sum("fill:#0072b2" in style for style in fills) == 2
    assert sum("fill:url(#fig-" in style for style in fills) == 1


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "sphinx_ext")
    return importlib.import_module("pictures")


@pytest.mark.parametrize(
    ("color", "becomes"),
    [
        ("#0072B2", "var(--fig-blue,#0072b2)"),
        ("#ffffff", "var(--fig-paper,#ffffff)"),
        ("#000000", "var(--fig-ink,#000000)"),
        ("#1a1a1a", "var(--fig-ink,#1a1a1a)"),
        # A tint, and a gray: between the color and paper.
        ("#cce3f0", "color-mix(in srgb,var(--fig-blue) 20%,var(--fig-paper))"),
        ("#cccccc", "color-mix(in srgb,var(--fig-ink) 20%,var(--fig-paper))"),
        ("#8000ff", "#8000ff"),  # none of ours
    ],
)
def test_the_palette_becomes_the_colors_of_the_page(pictures, color, becomes):
    assert pictures.themed(color) == becomes


def test_a_figure_is_put_into_the_page_with_its_words(pictures):
    ax = figures.bars(torch.tensor([0.2, 0.8]), ["#0072b2", "b"])
    text = encode(ax.figure)
    names = ["0" * 64 + ".svg", "1" * 64 + ".svg"]
    body = (
        f'<p><img alt="One &quot;a&quot;." src="../_images/{names[0]}" /></p>'
        f'<img alt="Two." src="../_images/{names[1]}" />'
        '<img alt="A photo." src="../_images/photo.svg" />'
    )
    page = BeautifulSoup(
        pictures.put_into(body, dict.fromkeys(names, text).get), "html.parser"
    )
    assert [i["alt"] for i in page.find_all("img")] == ["A photo."]
    found = page.select('span.picture[role="img"]')
    assert [f["aria-label"] for f in found] == ['One "a".', "Two."]
    ids = [e["id"] for e in page.find_all(id=True)]
    assert len(ids) == len(set(ids)) > 0
    for link in page.find_all("use"):
        assert link["href"][1:] in ids
    for svg in page.find_all("svg"):
        assert svg["aria-hidden"] == "true"
        # What is written is not painted: only paints are translated.
        assert "#0072b2" in [t.get_text() for t in svg.find_all("text")]
        bar = [p for p in svg.find_all("path") if "blue" in p["style"]]
        assert len(bar) == 2


def test_norm_places_are_three_and_two():
    """Pre-norm: one in front of each part and one at the end."""
    pre, post = (words(ax) for ax in figures.norm_places())
    assert pre.count("norm") == 3
    assert post.count("norm") == 2
    assert pre.count("+") == post.count("+") == 2


def test_between_and_within_connects_positions_by_attention_only():
    ax = figures.between_and_within(["a", "b", "c"], source=1)
    boxes = [patch.get_x() - 1.5 for patch in ax.patches]
    assert boxes == [0, 12, 24]
    texts = [text for text in ax.texts if text.get_text()]
    ax.figure.canvas.draw()
    assert not overlaps(texts, ax.figure.canvas.get_renderer())


def test_hidden_units_shows_every_number_of_the_example():
    x = torch.tensor([2.0, -1])
    w_1 = torch.tensor([[1.0, 0, 1], [0, 1, 1]])
    w_2 = torch.tensor([[1.0, 0], [5, 5], [0, 3]])
    ax = figures.hidden_units(x, w_1, w_2, torch.tensor([1.0, 1]), "sat")
    written = words(ax)
    for text in ("2 → 2", "−1 → 0", "1 → 1", "unit 3"):
        assert text in written
    # What the units add, (2 3), the stream, (1 1), and their sum, (3 4).
    assert written[-3:] == ["3", "4", "=  new stream of sat"]
    alone = figures.hidden_units(x, w_1, w_2)
    assert words(alone)[-3:] == ["2", "3", "sum of what the units add"]


def test_hidden_units_fades_what_is_off():
    x, w_2 = torch.ones(2), torch.ones(2, 2)
    w_1 = torch.tensor([[1.0, -1], [1, -1]])
    ax = figures.hidden_units(x, w_1, w_2)
    added = [p for p in ax.patches if p.get_x() > 60]
    on, off = (
        {p.get_alpha() for p in added if round(p.get_y() + 0.4) == -i}
        for i in range(2)
    )
    assert min(on) > 3 * max(off) > 0


def test_two_classes_gives_points_in_one_place_one_label():
    ax = figures.new_figure()[1][0]
    points = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (1.0, 0.0)}
    figures.two_classes(points, ["a"], "title", ax, below=["b"])
    assert words(ax) == ["a", "b,\nc"]
    assert [line.get_marker() for line in ax.lines] == ["o", "X"]


def test_matrix_areas_are_to_scale():
    ax = figures.matrix_areas()
    areas = [p.get_width() * p.get_height() for p in ax.patches]
    assert areas == [1, 1, 1, 1, 4, 4]
    ax.figure.canvas.draw()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_unit_memory_marks_the_token_at_which_a_unit_fires():
    rows = [("unit 1", "a:", "⏎", "So"), ("unit 2", "I", " will", "be")]
    ax = figures.unit_memory(rows, [0, 30, 60])
    assert {"a:[⏎]", "I[ will]"} <= set(words(ax))
    ax.figure.canvas.draw()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_logit_pushes_lift_what_came_and_press_the_others():
    """Logits 0, ln 2 and ln 5, on paper: e to their power is 1, 2 and 5."""
    logits = torch.tensor([0.0, math.log(2), math.log(5)])
    ax = figures.logit_pushes(["a", "b", "c"], logits, target=1)
    told = sorted(ax.texts, key=lambda text: text.get_position())
    rows = [
        [t.get_text() for t in told if t.get_position()[1] == -i]
        for i in range(4)
    ]
    assert rows == [
        ["a", "0.00", "1.000", "0.125", "0", "−0.125"],
        ["b", "0.69", "2.000", "0.250", "1", "+0.750"],
        ["c", "1.61", "5.000", "0.625", "0", "−0.625"],
        ["sum", "8.000", "1", "1", "0"],
    ]
    bold = [t.get_text() for t in ax.texts if t.get_weight() == "bold"]
    loss = "cross-entropy loss = −ln p(b) = −ln 0.25 = 1.39"
    assert bold == ["b", "1", loss]
    assert {"softmax", "target y", "push y − p"} <= set(words(ax))
    box_of = {
        t.get_text(): t.get_window_extent(ax.figure.canvas.get_renderer())
        for t in ax.texts
    }
    letter = box_of["sum"].width / 3  # no heading stands over the bars alone
    assert abs(box_of["push y − p"].x0 - box_of["+0.750"].x0) < letter
    assert abs(box_of["p = $e^z$ ÷ sum"].x0 - box_of["0.250"].x0) < letter
    band, *bars = ax.patches
    assert band.get_y() == pytest.approx(-1 - 0.44)  # the row of the target
    # A bar of p and one of the push, row by row, on one scale.
    wide = [bar.get_width() for bar in bars]
    shares = torch.tensor(wide) / (wide[0] / 0.125)
    assert shares.tolist() == pytest.approx(
        [0.125, 0.125, 0.25, 0.75, 0.625, 0.625]
    )
    zero = bars[3].get_x()  # that of the target to the right, others left
    for bar in (bars[1], bars[5]):
        assert bar.get_x() + bar.get_width() == pytest.approx(zero)
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_logit_pushes_never_write_minus_zero():
    ax = figures.logit_pushes(["a", "b"], torch.tensor([9.0, -9]), 0)
    assert not {"−0.000", "+0.000", "−0.00"} & set(words(ax))


def test_stable_rows_mark_what_has_failed():
    ax = figures.stable_rows(["a", "b"], [("e", ["0", "∞"], [1])])
    assert words(ax) == ["a", "b", "e", "0", "∞"]
    good, bad = (to_hex(patch.get_facecolor()) for patch in ax.patches)
    assert good != bad == figures.COLORS["red"].lower()
    assert ax.texts[-1].get_fontweight() == "bold"


def test_surprise_boxes_are_as_wide_as_text_and_as_high_as_loss():
    ax = figures.surprise_boxes([" an", "d"], [2.0, 1.0], {0: "0"})
    sizes = [(p.get_width(), p.get_height()) for p in ax.patches]
    assert sizes == [(3, 2.0), (1, 1.0)]
    assert {"␣", "2.0", "1.0"} <= set(words(ax))


def test_seed_dots_shows_each_seed_and_the_mean():
    ax = figures.seed_dots({"one": [1.0, 3.0], "two": [2.0, 2.0]}, "loss")
    dots = [
        line.get_xdata()
        for line in ax.lines
        if len(line.get_xdata()) == 2 and line.get_marker() == "o"
    ]
    assert [list(d) for d in dots] == [[1.0, 3.0], [2.0, 2.0]]
    assert words(ax) == ["2.00", "2.00"]


def test_learned_merges_join_the_most_frequent_pair():
    ax = figures.learned_merges({"aab": 3, "cb": 1}, [("a", "b"), ("a", "ab")])
    texts = [t.get_text() for t in ax.texts]
    assert "1. merge a and b" in texts
    assert texts.count("×3") == 3
    bold = [t.get_text() for t in ax.texts if t.get_weight() == "bold"]
    assert "a a: 3" in bold
    assert "a ab: 3" in bold
    widths = [round(box.get_width() + 0.1) for box in ax.patches]
    assert widths == [1, 1, 1, 1, 1, 1, 2, 1, 1, 3, 1, 1]


def test_learned_vocabulary_says_what_a_token_was_made_of():
    ax = figures.learned_vocabulary([("a", "b"), ("ab", "c")])
    ids = [t.get_text() for t in ax.texts if t.get_position()[0] == 0]
    assert ids == ["0 to 255", "256", "257"]
    widths = [round(box.get_width() + 0.1) for box in ax.patches]
    assert widths == [2, 1, 1, 3, 2, 1]


def test_replayed_merges_say_where_no_pair_is_left():
    ax = figures.replayed_merges("aab", [("a", "b"), ("a", "a")])
    widths = [round(box.get_width() + 0.1) for box in ax.patches]
    assert widths == [1, 1, 1, 1, 2, 1, 2]
    left = [t for t in ax.texts if "no such pair" in t.get_text()]
    assert [t.get_position()[1] for t in left] == [2 * 1.15]


def test_cost_columns_are_to_scale_each_by_itself():
    rows = [
        figures.CostRow("a", (1, 0), ("one", "none"), "blue"),
        figures.CostRow("b", (4, 8), ("four", "eight"), "gray"),
    ]
    ax = figures.cost_columns(rows, ("left", "right"))
    lengths = [patch.get_width() for patch in ax.patches]
    assert lengths == [6, 24, 0, 24]
    assert {"a", "b", "left", "right", "four", "none"} <= set(words(ax))


def test_stacks_add_up_and_number_their_parts():
    parts = {"one": "green", "two": "blue"}
    ax = figures.stacks({"a": (2, 1), "b": (2, 0)}, parts, "gigabytes")
    ends = [patch.get_x() + patch.get_width() for patch in ax.patches]
    assert ends == [2, 3, 2, 2]
    assert words(ax) == ["2.0", "1.0", "2.0"]


def test_roofline_bends_where_memory_and_processor_are_equal():
    ax = figures.roofline(300e12, 2e12, {"slow": 1, "fast": 1000})
    assert list(ax.lines[0].get_xdata())[1] == 150
    heights = [line.get_ydata()[0] for line in ax.lines[1:3]]
    assert heights == [2, 300]
    assert {"slow", "fast", "memory-bound", "compute-bound"} <= set(words(ax))


def test_loss_by_size_shows_each_seed():
    sizes, losses = [2e3, 1e5], [[2.4, 2.3], [1.9, 1.8]]
    ax = figures.loss_by_size(sizes, losses, held_back=(4e5, [1.7, 1.75]))
    dots = [list(line.get_ydata()) for line in ax.lines]
    assert dots == [[2.4, 2.3, 1.9, 1.8], [1.7, 1.75]]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["three seeds per size", "held back"]


def test_running_softmax_shrinks_what_it_has_summed():
    axes = figures.running_softmax([0, 1, 3, 1], [10, 4, 2, 8], 2)
    heights = [[bar.get_height() for bar in ax.patches] for ax in axes]
    assert heights == [[0.5, 1], [0.125, 0.25], [0.125, 0.25, 1, 0.25]]
    said = " ".join(words(axes[2]))
    assert "1.625" in said
    assert "6.25" in said


def test_tiles_skip_what_lies_above_the_diagonal():
    left, right = figures.tiles(12, size=4, now=(2, 1))
    assert len(left.patches) == 144
    marks = [word for word in words(right) if word]
    assert [marks.count(word) for word in ("skip", "done", "now")] == [3, 4, 1]


def test_rounding_draws_each_weight_and_its_ticks():
    row = figures.Rounding("a", [0.7, -0.33, 5], [0.6, -0.3, 6], [0.3, 0.1, 2])
    axes = figures.rounding([row, row._replace(title="b")], limit=0.8)
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]
    ticks = [len(found.get_paths()) for found in axes[1].collections]
    assert ticks == [5, 17]  # multiples of the step within the limit
    assert "5 ↑" in words(axes[1])  # too large to be drawn
    marks = [line for line in axes[1].lines if line.get_marker() == "s"]
    assert [line.get_ydata()[0] for line in marks] == [0.6, -0.3]


def test_accepted_and_missing_make_the_target():
    left, right = figures.accepted_mass(
        "abc", [0.5, 0.3, 0.2], [0.2, 0.6, 0.2]
    )
    sums = [
        sum(bar.get_height() for bar in ax.patches) for ax in (left, right)
    ]
    assert sums == pytest.approx([1, 1])
    assert [bar.get_hatch() for bar in left.patches].count("xx") == 1
    assert [bar.get_hatch() for bar in right.patches].count("//") == 1
    assert "0.3" in words(left)


def test_a_round_has_the_targets_token_where_the_draft_failed():
    runs = [(["dreamed", "of", "the"], 2, "a"), (["cake", "."], 2, "Then")]
    ax = figures.drafted_rounds(runs)
    first = ["run 1", "dreamed", "of", "a", "the"]
    assert words(ax)[:5] == first
    assert words(ax)[-1] == "Then"
    crossed = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert len(crossed) == 1


def test_a_timeline_has_a_bar_for_each_request():
    panels = {"one": [[(0, 3), (3, 9)], [(0, 5)]], "two": [[(0, 2)]]}
    axes = figures.slot_timeline(panels, end=11)
    assert [len(ax.patches) for ax in axes] == [3, 1]
    bar = axes[0].patches[1]
    assert (bar.get_x(), round(bar.get_width(), 1)) == (3, 5.7)
    assert axes[0].get_xlim() == (0, 11)


def test_model_cuts_give_every_part_to_a_machine():
    axes = figures.model_cuts()
    filled = [
        sum(p.get_width() * p.get_height() for p in ax.patches if p.get_fill())
        for ax in axes
    ]
    assert filled == [32, 16, 16, 16]


def test_pipeline_turns_pass_each_batch_on():
    ax = figures.pipeline_turns(3, 2)
    at = {}
    for text in ax.texts:
        turn, machine = text.get_position()
        at.setdefault(text.get_text(), []).append((turn - 0.5, machine))
    assert at == {"1": [(0, 0), (1, 1), (2, 2)], "2": [(1, 0), (2, 1), (3, 2)]}
    assert len(ax.patches) == 3 * 4


def test_update_sizes_point_the_way_of_their_sign():
    rows = {"a": (4, 0.4, 0.1), "b": (-2, -0.2, 0.027)}
    ax = figures.update_sizes(rows, (4, 0.4, 0.4))
    texts = words(ax)
    assert {"a", "b", "4", "−2", "−0.2", "0.027"} <= set(texts)
    widths = [round(box.get_width(), 3) for box in ax.patches]
    assert widths == [0.8, 0.4, 0.8, 0.4, 0.2, 0.054]
    left = [box.get_x() for box in ax.patches]
    assert left[0] == 0
    assert left[1] == pytest.approx(-0.4)


def test_one_memory_is_read_by_each_block():
    ax = figures.one_memory(3)
    heads = [t.xy for t in ax.texts if t.get_text() == "" and t.xy[0] == 5.6]
    assert sorted(round(y) for _, y in heads) == [1, 1, 2, 2, 3, 3]
    assert words(ax).count("block 2") == 2
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_generated_steps_read_what_was_predicted():
    ax = figures.generated_steps("s", ["<bos>", "a", "b", "<eos>"])
    at = {t.get_position(): t.get_text() for t in ax.texts}
    for step, reads in enumerate((["<bos>"], ["<bos>", "a"])):
        assert [at[j, -step] for j in range(step + 1)] == reads
        assert (step + 1, -step) not in at
    assert [at[4, -i] for i in range(3)] == ["a", "b", "<eos>"]
    assert len(ax.lines) == 2  # from a prediction to where it is read


def test_alignment_draws_a_line_for_each_large_weight():
    weights = torch.tensor([[0.1, 0.9, 0.0], [0.7, 0.0, 0.3]])
    ax = figures.alignment(["ein", "Hund", "."], ["dog", "a"], weights)
    assert words(ax)[:5] == ["ein", "Hund", ".", "dog", "a"]
    places = {t.get_text(): t.get_position()[0] for t in ax.texts}
    drawn = {tuple(map(float, line.get_xdata())) for line in ax.lines}
    pairs = [("dog", "Hund"), ("a", "ein"), ("a", ".")]
    wanted = {(places[one], places[other]) for one, other in pairs}
    assert len(drawn) == 3
    for one, other in zip(sorted(drawn), sorted(wanted), strict=True):
        assert one == pytest.approx(other)
    # The largest of each target token is told; the threshold stands apart.
    assert [w for w in words(ax) if w[0] == "0"] == ["0.90", "0.70"]
    assert {"source", "target", "lines: weights from 0.2 up"} <= set(words(ax))
    for told, (one, other) in zip(("0.90", "0.70"), pairs, strict=False):
        low, high = sorted((places[one], places[other]))
        assert low < places[told] < high
    weak = torch.tensor([[0.49, 0.2, 0.31]])
    ax = figures.alignment(["a", "b", "c"], ["d"], weak)
    assert not [w for w in words(ax) if w[0] == "0"]


def test_reach_fills_the_cells_that_move():
    grid = torch.tensor([[True, False, True], [False, False, True]])
    (ax,) = figures.dependence({"one": (grid, ["a", "b"], ["x", "y", "pad"])})
    filled = {
        (round(box.get_x() + 0.44), round(box.get_y() + 0.44))
        for box in ax.patches
        if box.get_fill() and box.get_alpha()
    }
    assert filled == {(0, 0), (2, 0), (2, 1)}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x", "y", "pad"]
    assert ax.get_title("center") == "one"


def test_cross_attention_has_a_row_for_each_target_token():
    memory = {"chat": torch.tensor([1.0, 0]), "noir": torch.tensor([0.0, 2])}
    y = {name: torch.tensor([2.0, 0]) for name in ("<bos>", "black", "cat")}
    q, k = torch.stack([*y.values()]), torch.stack([*memory.values()])
    one = words(figures.attention_to_memory(y, memory, q, k, k, worked=1))
    every = words(figures.attention_to_memory(y, memory, q, k, k))
    weight = (q @ k.T / 2**0.5).softmax(-1)[0, 0].item()
    assert one.count(f"{weight:.2f}") >= 1
    assert every.count(f"{weight:.2f}") == 3 * one.count(f"{weight:.2f}")
    assert {*memory, *y} <= {*one}
    assert {*memory, *y} <= {*every}


def test_two_stacks_lead_keys_and_values_into_the_decoder():
    ax = figures.two_stacks(["chat"], ["<bos>", "cat"], ["cat", "<eos>"])
    texts = words(ax)
    assert texts.count("N blocks") == 2
    assert "memory" in texts
    assert {"chat", "<bos>  cat", "cat  <eos>", "keys, values"} <= {*texts}
    renderer = ax.figure.canvas.get_renderer()
    assert not overlaps(ax.texts, renderer)


def test_induction_path_leads_behind_the_last_appearance():
    ax = figures.induction_path("·CAFHCAF")
    assert "→ H" in words(ax)
    bold = {t.get_text() for t in ax.texts if t.get_weight() == "bold"}
    assert bold == {"4", "7", "→ H"}
    bare = figures.induction_path("·HCAFBHC", before=False)
    assert "→ A" in words(bare)
    assert len(words(ax)) > len(words(bare)) + 7  # a note per letter but one


def test_bar_panels_measure_the_same_names():
    axes = figures.bar_panels(
        {"weight": {"a": 0.9, "b": 0.1}, "loss": {"a": 1.0, "b": 3.0}},
        ["weight", "loss"],
    )
    assert [words(ax) for ax in axes] == [["0.90", "0.10"], ["1.00", "3.00"]]
    assert [p.get_width() for ax in axes for p in ax.patches] == [
        0.9, 0.1, 1.0, 3.0
    ]  # fmt: skip
    names = [t.get_text() for t in axes[0].get_yticklabels()]
    assert names == ["a", "b"]
    assert not any(t.get_text() for t in axes[1].get_yticklabels())
    plain = figures.bar_panels({"x": {"a": 0.009}}, ["stream"], digits=None)
    assert words(plain[0]) == ["0.009"]


def test_patched_stream_marks_one_vector_in_both_runs():
    ax = figures.patched_stream(["a", "b"], ["a", "c"], 1, 1, 3)
    assert len(ax.patches) == 2 * 2 * 4  # boxes of both runs
    marked = [
        (patch.get_x() + 0.42, patch.get_y() + 0.36)
        for patch in ax.patches
        if patch.get_alpha() == 0.55
    ]
    assert np.allclose(marked, [(1, 1), (1 + 4.4, 1)])
    bold = {t.get_text() for t in ax.texts if t.get_weight() == "bold"}
    assert bold == {"b", "c"}


def test_lens_rows_stand_at_their_depth():
    p = torch.tensor([[0.9, 0.001], [0.5, 0.25]])
    ax = figures.lens_rows([[" a", "b"], ["c", "d"]], p)
    at = {t.get_text(): t.get_position()[1] for t in ax.texts}
    assert at == {
        "embedding": 0, "a 90 %": 0, "b < 1 %": 0,
        "after block 1": 1, "c 50 %": 1, "d 25 %": 1,
    }  # fmt: skip


def test_two_losses_say_what_is_reported_and_what_comes_out_in_use():
    runs = {"one": [1.0, 2.0], "two": [3.0, 3.0]}
    ax = figures.two_losses(runs)
    assert words(ax) == ["1.50", "3.00"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "two"]
    assert ax.get_legend() is None
    ax = figures.two_losses(runs, {"one": 4.0, "two": 3.0})
    assert words(ax) == ["1.50 → 4.00", "3.00 → 3.00"]
    diamonds = [line for line in ax.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in diamonds] == [4.0, 3.0]


def test_changed_token_crosses_what_moves_before_it():
    axes = figures.changed_token(
        [(1, 1), (3, 7)],
        {"mask": [(1, 1), (2, 4)], "none": [(2, 4), (2, 4)]},
    )
    assert words(axes[0])[-2:] == ["stays", "moves"]
    assert words(axes[1])[-2:] == ["moves ×", "moves"]
    colors = [
        to_hex(patch.get_facecolor()).upper() for patch in axes[1].patches
    ]
    assert colors[2] == figures.COLORS["orange"]  # the output before it


def test_oracle_bars_are_as_high_as_the_losses():
    axes = figures.oracle_bars(
        {"a": {-1: 26.0, 1: -0.0}, "b": {-1: 3.25, 1: 2}}
    )
    assert words(axes[0]) == ["26", "0"]
    assert [patch.get_height() for patch in axes[1].patches] == [3.25, 2]
    assert [t.get_text() for t in axes[0].get_xticklabels()] == ["−1", "+1"]


def test_checklist_has_a_box_per_line():
    ax = figures.checklist(
        {"one": [("a", "b"), ("c", "d")], "two": [("e", "f")]}
    )
    assert len(ax.patches) == 3
    assert words(ax) == ["one", "a", "b", "c", "d", "two", "e", "f"]


def test_norms_compared_work_out_sat():
    axes = figures.norms_compared(torch.tensor([3.54, 2.91, -0.21, -0.11]))
    assert words(axes[1])[:4] == ["1.18", "0.81", "−1.02", "−0.96"]
    assert words(axes[2]) == ["1.54", "1.27", "−0.09", "−0.05", "mean 0.67"]


def test_gated_units_multiply_gate_and_value():
    ax = figures.gated_units([2, 2, 0, -2], [0.5, -0.5, 0.5, 0.5])
    assert {"1.76", "0.88", "−0.88", "−0.24", "−0.12"} <= set(words(ax))


def test_learning_rates_shows_the_peak_and_the_warmup():
    ax = figures.learning_rates([0.5, 1.0, 0.6, 0.1], warmup=2)
    assert list(ax.lines[0].get_ydata()) == [0.5, 1.0, 0.6, 0.1]
    assert list(ax.lines[1].get_xdata()) == [2, 2]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "1"]


def test_schedules_name_the_peaks():
    arms = {"with": [[0.1, 0.3], [0.5, 1.0]], "without": [[0.3], [1.0]]}
    axes = figures.schedules(arms)
    assert [len(ax.lines) for ax in axes] == [2, 2]
    assert list(axes[0].lines[1].get_ydata()) == [0.5, 1.0]
    labels = [t.get_text() for t in axes[0].get_yticklabels()]
    assert labels == ["0.3", "1"]
    assert axes[1].get_yscale() == "log"


def test_split_text_is_to_scale():
    ax = figures.split_text(9000, 1000, first=10)
    boxes = [(b.get_x(), b.get_width()) for b in ax.patches if b.get_fill()]
    assert boxes == [(0, 9000), (9000, 1000), (0, 10)]
    assert "run 2 trains on 9,000 characters" in words(ax)
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_train_and_validation_tells_them_apart_without_color():
    run = {"training": [[2, 1], [2, 0.5]], "validation": [[2, 3], [2, 4]]}
    axes = figures.train_and_validation({"one": run, "two": run}, [5, 10], 3)
    styles = [line.get_linestyle() for line in axes[0].lines]
    assert styles == ["-", "-", "--", "--", ":"]
    assert list(axes[0].lines[3].get_ydata()) == [2, 4]
    assert [ax.get_title(loc="left") for ax in axes] == ["one", "two"]
    legend = [t.get_text() for t in axes[1].get_legend().get_texts()]
    assert legend == ["training", "validation"]


def test_rate_valleys_draw_the_mean_of_the_seeds_at_each_rate():
    arms = {"with": [[1.0, 3.0], [2.0, 2.0]], "without": [[5.0], [6.0]]}
    ax = figures.rate_valleys([0.01, 0.1], arms)
    means = [list(c.lines[0].get_ydata()) for c in ax.containers]
    assert means == [[2.0, 2.0], [5.0, 6.0]]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.01", "0.1"]
    assert ax.get_xscale() == "log"


def test_turned_pairs_keep_the_score_of_a_distance():
    places = [None, (2, 1), (3, 2), (3, 1)]
    axes = figures.turned_pairs((1, 2), (0, 1), places, math.pi / 2, "abcd")
    scores = [words(ax)[-1] for ax in axes]
    assert scores == ["score 2", "score 1", "score 1", "score −2"]


def test_head_groups_share_neighbors():
    ax = figures.head_groups(9, [9, 3], ["own", "shared"])
    ends = [line.get_xdata() for line in ax.lines]
    assert all(a == b for a, b in ends[:9])
    assert [b for _, b in ends[9:]] == [1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert len(ax.patches) == 9 + 2 * 9 + 9 + 2 * 3


def test_chain_of_designs_fills_what_the_first_has_not():
    designs = {"a": ["x", "y"], "b": ["z", "y"], "c": ["z", "w"]}
    ax = figures.chain_of_designs(["one", "two"], designs, ["key", "ffn"])
    tints = [box.get_alpha() for box in ax.patches if box.get_fill()]
    assert [bool(alpha) for alpha in tints] == [
        False, False, True, False, True, True,
    ]  # fmt: skip
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[0, -1], at[1, -1]] == ["z", "y"]


def test_block_matrices_are_to_scale_and_do_not_lie_on_one_another():
    shapes = [(6, 6), (6, 2), (6, 2), (6, 6), (6, 16), (6, 16), (16, 6)]
    matrices = [
        (f"{i}", f"w_{i}", 96 * rows, 96 * columns, "ffn")
        for i, (rows, columns) in enumerate(shapes)
    ]
    ax = figures.block_matrices(matrices)
    boxes = [box for box in ax.patches if box.get_fill()]
    sizes = [(b.get_height() // 96, b.get_width() // 96) for b in boxes]
    assert sizes == shapes
    extents = [box.get_bbox() for box in boxes]
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for i, one in enumerate(extents):
        assert left <= one.x0 < one.x1 <= right
        assert low <= one.y0 < one.y1 <= high
        assert not any(one.overlaps(other) for other in extents[:i])
    assert words(ax)[1] == "1\nw_1\n576\n×\n192"
    assert words(ax)[6] == "6\nw_6\n1,536 × 576"


def test_two_designs_fill_what_differs():
    rows = [("a", "a", "token"), ("b", "c", "norm"), ("d", "d", "ffn")]
    ax = figures.two_designs(("one", "other"), rows)
    filled = [box for box in ax.patches if box.get_alpha() == 0.3]
    assert [box.get_y() for box in filled] == [0.64]
    assert words(ax).count("+") == 2
    ax.figure.canvas.draw()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())


def test_window_reach_grows_with_the_blocks():
    ax = figures.window_reach(window=4, n_tokens=12, n_blocks=2)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    filled = [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in dots
        if line.get_markerfacecolor() != "none"
    ]
    assert [x for x, y in filled if y == 0] == [5, 6, 7, 8, 9, 10, 11]
    assert [x for x, y in filled if y == 1] == [8, 9, 10, 11]


def test_shares_are_cut_in_proportion():
    ax = figures.new_figure()[1][0]
    figures.shares(torch.tensor([[0.5, 0.45, 0.05]]), ["seed 0"], ax)
    widths = [p.get_width() for p in ax.patches[::2]]
    assert widths == pytest.approx([0.5, 0.45, 0.05], abs=1e-6)
    assert words(ax) == ["50", "45"]


def test_rounded_weights_lie_on_sixteen_levels():
    weights = torch.linspace(-1, 1, 32) ** 3
    stored = (weights * 7.5 + 7.5).round() / 7.5 - 1
    ax = figures.rounded_weights(weights, stored)
    levels = [line.get_ydata()[0] for line in ax.lines[:16]]
    assert levels == pytest.approx([-1 + i * 2 / 15 for i in range(16)])


# -- the encoder --------------------------------------------------------------
def test_both_directions_writes_no_weight_where_a_key_is_hidden():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    free = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    grids = {"decoder": weights, "encoder": free}
    left, right = figures.both_directions(grids, ["a", "b"], row=0)
    assert words(left) == ["1.00", "", "0.25", "0.75"]
    assert words(right) == ["0.50", "0.50", "0.25", "0.75"]
    frame = right.patches[-1]
    assert frame.get_y() < 0 < frame.get_y() + frame.get_height() < 1
    assert frame.get_width() > 1.9  # around the whole row


def test_reach_crosses_an_answer_only_if_it_is_seen():
    hidden = torch.tensor([[True, False], [True, True]])
    seen = torch.ones(2, 2, dtype=torch.bool)
    axes = figures.reach({"hidden": hidden, "seen": seen}, ["a", "b"])
    assert [words(ax).count("×") for ax in axes] == [0, 1]
    at = {t.get_position(): t.get_text() for t in axes[1].texts}
    assert at[1, 0] == "×"


def test_reach_says_what_a_row_is():
    axes = figures.reach({"a mask": torch.eye(2) > 0}, "ab", rows="query")
    assert axes[0].get_ylabel() == "query (row)"


def test_seen_at_gap_hides_the_gap_and_for_one_what_follows():
    words_ = ["a", "b", "c", "d", "e"]
    axes = figures.seen_at_gap(words_, 3, {"both": True, "left": False})
    for ax, hidden in zip(axes, ({(0, -1)}, {(0, -1), (1, -1)}), strict=True):
        at = {t.get_position(): t.get_text() for t in ax.texts}
        assert [at[2, 0], at[0, -1], at[1, -1]] == ["c", "?", "e"]
        dotted = {
            (round(box.get_x() + 0.46), round(box.get_y() + 0.38))
            for box in ax.patches
            if box.get_linestyle() == ":"
        }
        assert dotted == hidden
    assert [ax.get_title(loc="left") for ax in axes] == ["both", "left"]


def test_objectives_asks_for_the_gap_alone():
    shifted, masked = figures.objectives(["a", "b", "c"], gap=1)
    at = {t.get_position(): t.get_text() for t in shifted.texts}
    assert [at[0, 0], at[0, -1.6], at[1, -1.6]] == ["a", "b", "c"]
    at = {t.get_position(): t.get_text() for t in masked.texts}
    assert [at[0, 0], at[1, 0], at[1, -1.6]] == ["a", "[MASK]", "b"]
    assert (0, -1.6) not in at


def test_fillings_draws_each_probability():
    guesses = {
        "tired": {"both": {"a": 0.9, "b": 0.1}, "left": {"a": 0.5, "b": 0.5}},
        "wide": {"both": {"a": 0.2, "b": 0.8}, "left": {"a": 0.5, "b": 0.5}},
    }
    axes = figures.fillings(guesses)
    widths = [[box.get_width() for box in ax.patches] for ax in axes]
    assert widths == [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.5, 0.5]]
    assert [t.get_text() for t in axes[2].get_yticklabels()] == ["a", "b"]
    assert [words(ax).count("wide") for ax in axes] == [0, 0, 1, 0]


def test_gap_losses_has_a_mean_and_a_floor_for_each_gap():
    losses = {"both": [[1.0, 3.0], [0.5, 0.5]], "left": [[2.0], [2.0]]}
    ax = figures.gap_losses(["a", "b"], losses, [[0.7, 0.1], [1.4, 1.4]])
    assert [bar.get_height() for bar in ax.patches] == [2, 0.5, 2, 2]
    lines = [list(line.get_ydata()) for line in ax.lines]
    assert all(pair in lines for pair in ([0.7, 0.7], [1.4, 1.4], [1, 3]))


def test_padded_batch_fills_up_the_shorter_row():
    ax = figures.padded_batch([["a", "b", "c"], ["d"]])
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[x, -1] for x in range(3)] == ["d", "pad", "pad"]
    assert [at[x, 0] for x in range(3)] == ["a", "b", "c"]


def boot():
    """A picture of 28 x 28 pixels, dark at the bottom."""
    return torch.linspace(0, 1, 28)[:, None].expand(28, 28)


def test_image_row_frames_and_labels_each_image():
    axes = figures.image_row([boot(), boot()], ["boot", "bag"])
    assert [words(ax) for ax in axes] == [["boot"], ["bag"]]
    assert [len(ax.images) for ax in axes] == [1, 1]


def test_patch_sequence_has_the_class_token_first():
    ax = figures.patch_sequence(boot(), 7)
    written = [word for word in words(ax) if word]  # an arrow has no words
    assert written[:4] == ["class", "0", "1", "1"]
    assert written[4:] == [str(i) for i in range(2, 17) for _ in range(2)]
    at = [t.get_position() for t in ax.texts if t.get_text() in ("1", "2")]
    grid, sequence = at[::2], at[1::2]  # a number stands under its patch
    assert [box.get_extent()[2] - 0.06 for box in ax.images[1:5]] == [
        y for pair in zip(grid, sequence, strict=True) for _, y in pair
    ]
    assert len(ax.images) == 1 + 2 * 16
    last = ax.images[-1]  # patch 16, in the sequence
    assert torch.equal(torch.tensor(last.get_array()), boot()[21:, 21:])


def test_pixel_cuts_draw_lines_between_patches():
    cut = torch.tensor([[0, 1, 4, 5], [2, 3, 6, 7],
                        [8, 9, 12, 13], [10, 11, 14, 15]])  # fmt: skip
    strips = torch.arange(16).view(4, 4)
    squares, rows = figures.pixel_cuts({"a": cut, "b": strips})
    assert set(words(squares)) == set(words(rows))

    def inner(ax):
        ends = [(line.get_xdata(), line.get_ydata()) for line in ax.lines]
        return {x[0] for x, y in ends if x[0] == x[1]}

    assert inner(squares) == {0, 2}
    assert inner(rows) == {0}


def test_patch_vectors_multiply():
    matrix = torch.tensor([[1, 1], [1, -1], [1, 1], [1, -1]])
    pixels = torch.tensor([[9, 0, 9, 0]])
    ax = figures.patch_vectors(pixels, matrix, ["all", "left"])
    assert words(ax).count("18") == 2


def test_looked_at_frames_the_highest_weights():
    look = torch.zeros(1, 4)
    look[0, 3] = 1.0  # bottom right
    [ax] = figures.looked_at([boot()], {"after": look}, n=1)
    assert words(ax) == ["1"]
    assert ax.texts[0].get_position() == (1.5, 0.5)


def test_class_token_path_reads_the_first_vector():
    ax = figures.class_token_path("logits")
    assert words(ax)[-1] == "logits"
    assert "class" in words(ax)


def test_accuracy_dots_compare_two_tests():
    ax = figures.accuracy_dots({"a": [80, 82]}, {"a": [40, 44]})
    assert words(ax) == ["81 %", "42 %"]
    heights = [line.get_ydata()[0] for line in ax.lines[:2]]
    assert heights[0] > heights[1]


# -- shapes and conventions --------------------------------------------------
def test_slices_fills_what_an_index_takes():
    """Entry (b, t, d) of (2, 3, 5), the second sentence below the first."""
    taken = torch.zeros(2, 3, 5, dtype=torch.bool)
    taken[1, -1] = True
    filled, empty = figures.slices({"x[1, -1]": taken, "none": ~taken & taken})
    corners = [p.get_xy() for p in filled.patches if p.get_facecolor()[3]]
    assert corners == [(d, 2 + 1 * 3.8) for d in range(5)]
    assert not any(p.get_facecolor()[3] for p in empty.patches)


def test_weights_both_ways_are_the_transpose_of_one_another():
    rows, columns = figures.weights_both_ways(3, query=1)
    at = {t.get_position(): t.get_text() for t in rows.texts}
    assert at[0, 1] == "1 ← 0"
    assert at[1, 0] == ""  # a later key
    other = {t.get_position(): t.get_text() for t in columns.texts}
    assert other == {(y, x): text for (x, y), text in at.items()}
    frames = [ax.patches[-1] for ax in (rows, columns)]
    sizes = [(frame.get_width(), frame.get_height()) for frame in frames]
    assert sizes == [(3, 1), (1, 3)]


def test_turns_shows_an_angle_that_only_the_distance_decides():
    ax = figures.turns(
        [(1, 3), (101, 103), (1, 4)], torch.tensor([math.pi / 4]), ["a"]
    )
    angles = [t.get_text() for t in ax.texts if "°" in t.get_text()]
    assert angles == ["90°", "90°", "135°"]
    tips = [(line.get_xdata()[1], line.get_ydata()[1]) for line in ax.lines]
    # Clockwise from the top: an eighth, and three eighths of a turn.
    side = 0.4 * 0.5**0.5
    assert np.allclose(tips[:2], [(side, side), (side, -side)])


def test_token_bytes_shows_what_a_token_is_alone():
    tokens = [(7, b"a"), (300, b"\xc3"), (301, b"\xa9 ")]
    ax = figures.token_bytes(["a", "é", " "], [1, 2, 1], tokens)
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert [at[0.5, 3], at[2.0, 3], at[3.5, 3]] == ["a", "é", "␣"]
    assert [at[x + 0.5, 2] for x in range(4)] == ["61", "c3", "a9", "20"]
    assert [at[0.5, 1], at[1.5, 1], at[3.0, 1]] == ["7", "300", "301"]
    assert [at[0.5, 0], at[1.5, 0], at[3.0, 0]] == ["a", "�", "�␣"]


def test_vectors_read_fills_the_last_vector_alone():
    ax = figures.vectors_read(["a", "b", "c"], ["below", "top"])
    filled = [p for p in ax.patches if p.get_fill() and p.get_alpha()]
    assert [p.get_xy() for p in filled] == [(1.6, 1 - 0.22)]


# -- the book itself ---------------------------------------------------------
def test_a_peer_keeps_its_mark_and_lies_where_its_ratio_is():
    works = {
        "train": {"one": (2.0, 1.5, 2.25), "two": (0.5, 0.25, 0.75)},
        "write": {"two": (4.0, 3.0, 5.0)},
    }
    ax = figures.speed_ratios(works)
    marks = [line for line in ax.lines if line.get_marker() in tuple("os")]
    drawn = [
        (line.get_marker(), line.get_xdata()[0], round(line.get_ydata()[0]))
        for line in marks
        if len(line.get_xdata())
    ]
    assert drawn == [("o", 2.0, 0), ("s", 0.5, 0), ("s", 4.0, 1)]
    spans = [tuple(line.get_xdata()) for line in ax.lines]
    assert {(1.5, 2.25), (0.25, 0.75), (3.0, 5.0), (1, 1)} <= set(spans)
    names = [t.get_text() for t in ax.figure.legends[0].get_texts()]
    assert names == ["one", "two"]
    assert "right of 1, coursekit is faster" in ax.get_xlabel()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["train", "write"]


def test_fine_tuning():
    """Targets of answers alone; W + B A to the last cell; every mean."""
    ax = figures.counted_targets(["a", "b", "c", "d"], n_prompt=2)
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("−") == 1  # the target b belongs to the prompt
    assert [texts.count(word) for word in "abcd"] == [1, 1, 2, 1]
    weight, a = torch.zeros(3, 2), torch.tensor([[1.0, -1]])
    ax = figures.low_rank_update(weight, a, torch.tensor([[7.0], [0], [2]]))
    assert [t.get_text() for t in ax.texts].count("−7") == 1
    ways = {"x": ([0.5, 0.7], [1.0, 2.0]), "y": ([0.1], [3.0])}
    left, right = figures.forgotten(ways, before=0.5)
    assert [t.get_text() for t in left.texts] == ["60 %", "10 %"]
    assert [t.get_text() for t in right.texts] == ["1.50", "3.00"]


def test_groups_of_answers_and_policies():
    """Every answer with what it earned; a panel for each policy."""
    ax = figures.group_of_answers(["Jo.", "Al."], [0, 1], [-0.7, 0.7])
    texts = [text.get_text() for text in ax.texts]
    assert texts[:3] == ["Jo.", "0", "−0.70"]
    assert texts[3:6] == ["Al.", "1", "+0.70"]
    bars = [p for p in ax.patches if p.get_height() == 0.5]
    assert [bar.get_width() < 0 for bar in bars] == [True, False]
    top, bottom = figures.policies("ab", {"x": [0.2, 0.8], "y": [1, 0]})
    assert [p.get_height() for p in top.patches] == [0.2, 0.8]
    assert [t.get_text() for t in bottom.get_xticklabels()] == ["a", "b"]
    assert top.texts[0].get_text() == "x"
    asked = figures.policies("ab", {"x": [], "y": [1, 0]})[0]
    assert words(asked) == ["?", "x"]


def test_answers_as_training_goes_on():
    """What each earned, in words too; a mean; long answers are cut off."""
    long = "Al. Now Al is happy, and so is Jo."
    columns = {"before": [("Al.", 0), (long, 0)], "after": [("Jo.", 1)] * 2}
    ax = figures.drawn_answers(columns)
    texts = [text.get_text() for text in ax.texts]
    assert texts[:4] == ["Al.", "0", long[:22] + "…", "0"]
    assert texts[4:6] == ["before", "mean 0"]
    assert [*texts[6:8], texts[-1]] == ["Jo.", "1", "mean 1"]
    fills = [box.get_facecolor() for box in ax.patches]
    assert len({*fills[:2]}) == len({*fills[2:]}) == 1
    assert fills[0] != fills[2]
    weights = [t.get_weight() for t in ax.texts if t.get_text() == "1"]
    assert weights == ["bold"] * 2


def test_module_gaps_outline_the_first_difference():
    gaps = {"norm": [0, 0, 0.25], "w_q": [0, 0.5, 0.125]}
    ax = figures.module_gaps(gaps)
    assert words(ax) == ["equal", "equal", "equal", "0.5", "0.25", "0.12"]
    [outline] = [box for box in ax.patches if not box.get_fill()]
    assert outline.get_center() == pytest.approx((1, 1))
    same = figures.module_gaps({"norm": [0, 0]})
    assert all(box.get_fill() for box in same.patches)


def test_probe_questions_ask_of_outputs_before_the_change():
    causal, context, batch, again = figures.probe_questions()
    asked = [
        [t.get_text() for t in ax.texts if t.get_position()[1] == -1.5]
        for ax in (causal, context, batch, again)
    ]
    assert asked == [
        ["=", "=", "=", "", "output"],
        ["", "", "", "≠", "output"],
        [*"====", "output"],
        [*"====", "output"],
    ]


def test_ngram_hits_count_what_the_reference_has():
    text, human = "a black cat sleeps", "a black cat is sleeping"
    ax = figures.ngram_hits(text.split(), human.split())
    assert words(ax)[4:] == [
        *("words", "3 of 4", "pairs", "2 of 3"),
        *("triples", "1 of 2", "quadruples", "0 of 1"),
    ]
    ax = figures.ngram_hits(text.split(), text.split())
    assert words(ax)[-1] == "1 of 1"


def test_cache_pages_hold_each_text_and_no_page_too_many():
    full, paged = figures.cache_pages([16, 17, 40], reserved=48, page=16)
    for ax, n_boxes in ((full, 3), (paged, 1 + 2 + 3)):
        boxes = [box for box in ax.patches if not box.get_fill()]
        filled = [box for box in ax.patches if box.get_fill()]
        assert len(boxes) == n_boxes
        assert [box.get_width() for box in filled] == [16, 17, 40]


def test_kept_vectors_are_a_key_and_a_value_each():
    ax = figures.kept_vectors(["a", "b", "c"], n_blocks=2)
    assert words(ax).count("K") == words(ax).count("V") == 2 * 3


def test_expert_routes_write_the_weights_of_the_chosen():
    weights = torch.tensor([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])
    ax = figures.expert_routes(weights, ["a", "b"])
    at = {t.get_position(): t.get_text() for t in ax.texts}
    assert (at[1, 0], at[2, 0], at[0, -1]) == ("0.25", "0.75", "1.00")
    assert sum(not box.get_fill() for box in ax.patches) == 3


def test_paired_entries_keep_their_pairs():
    ax = figures.paired_entries([0, 2, 1, 3])
    below = [t.get_text() for t in ax.texts if t.get_position()[1] == -2]
    assert below[:4] == ["0 a", "2 a", "1 b", "3 b"]
    lines = [tuple(line.get_xdata()) for line in ax.lines]
    assert lines == [(0, 0), (2, 1), (1, 2), (3, 3)]


def test_vector_rows_write_each_number():
    rows = {"x": torch.tensor([1.0, -0.26]), "y": torch.tensor([0.0, 3.0])}
    left, right = figures.vector_rows({"one": rows, "two": rows}, digits=1)
    assert words(left) == words(right) == ["1.0", "−0.3", "0.0", "3.0"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["x", "y"]


def test_read_and_targets_leave_out_what_the_loss_does_not_ask():
    ax = figures.read_and_targets(["a", "?"], [None, "b"])
    assert words(ax) == ["reads", "target", "a", "−", "?", "b"]


def test_a_stored_row_rounds_each_weight_to_a_whole_step():
    ax = figures.stored_row([0.75, -0.375], step=0.25, most=3)
    drawn = words(ax)
    assert drawn[:6] == ["0.75", "3", "0.8", "−0.38", "−2", "−0.5"]
    squares = [line for line in ax.lines if line.get_marker() == "s"]
    assert [line.get_ydata()[0] for line in squares] == [3, -2]


def test_what_is_rejected_is_drawn_again():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.6, 0.2]
    ax = figures.kept_and_redrawn("abc", p, q)
    tall = {"xx": [], "//": [], None: []}
    for part in ax.patches:
        if isinstance(part, matplotlib.patches.Rectangle):
            tall[part.get_hatch()].append((part.get_x(), part.get_height()))
    for x in (0, 1.6, 3.2):  # each column is full
        parts = [h for kind in tall.values() for at, h in kind if at == x]
        assert sum(parts) == pytest.approx(1)
    assert tall["//"] == [(3.2, pytest.approx(0.3))]
    assert [h for _, h in tall["xx"]] == pytest.approx([0.3, 0.3])


def test_batches_show_from_where_on_targets_count():
    one, two = figures.batches_compared({"a": [0.75, 0.75], "b": [0.0]})
    widths = [box.get_width() for box in one.patches]
    assert widths == [1, 0.25, 1, 0.25]
    assert [box.get_width() for box in two.patches] == [1, 1]


def test_updates_are_drawn_to_scale():
    ax = figures.updates_to_scale([("W", (12, 30), (0, 0))], rank=2)
    sizes = [(box.get_width(), box.get_height()) for box in ax.patches]
    assert sizes == [(30, 12), (30, 2), (2, 12)]


def test_preference_curve_names_its_points():
    ax = figures.preference_curve(([-1, 1], [0.25, 0.75]), [(0, 0.5)])
    assert words(ax) == ["0.50"]


def test_training_chains_have_an_arrow_between_two_boxes():
    ax = figures.training_chains({"a": [("x", "token"), ("y", "stream")]})
    assert words(ax) == ["a", "x", "y", ""]


def test_checked_answers_show_each_reward():
    ax = figures.checked_answers(["Jo.", "Al."], {"p": [1, 0], "q": [1, 1]})
    assert words(ax) == ["Jo.", "Al.", "p", "1", "0", "q", "1", "1", "answer"]


def test_matrix_products_keep_shapes():
    parts = [("Y", 3, 4, "stream"), ("X", 3, 2, "stream"), ("W", 2, 4, "loss")]
    ax = figures.matrix_products([("forward", parts)])
    sizes = {(box.get_height(), box.get_width()) for box in ax.patches}
    assert sizes == {(3, 4), (3, 2), (2, 4)}
    assert words(ax) == ["forward", "Y", "=", "X", "·", "W"]


def test_the_column_of_a_map_is_what_its_token_moves():
    grid = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1]]).bool()
    left, right = figures.column_of_map(grid, column=2)
    assert words(left) == ["", "moves", "", "stays", "new", "moves"]
    filled = [box.get_facecolor() for box in right.patches[:-1]]
    pattern = [color == filled[0] for color in filled]
    assert pattern == grid.flatten().tolist()
    assert right.patches[-1].get_bbox().x0 == 1.5


def test_a_solid_arrow_leads_from_point_to_point():
    ax = style.new_figure()[1][0]
    style.solid_arrow(ax, (0.2, 0.3), (0.7, 0.8), figures.COLORS["red"], 3)
    (drawn,) = ax.texts
    assert (drawn.xyann, drawn.xy) == ((0.2, 0.3), (0.7, 0.8))
    drawn.update_positions(ax.figure.canvas.get_renderer())
    patch = drawn.arrow_patch
    assert to_hex(patch.get_facecolor()) == figures.COLORS["red"].lower()
    assert patch.get_linewidth() == 3
    assert (patch.shrinkA, patch.shrinkB) == (0, 0)
    # The control: matplotlib's own keep a distance.
    far = ax.annotate("", (0, 0), (1, 1), arrowprops={"arrowstyle": "-|>"})
    far.update_positions(ax.figure.canvas.get_renderer())
    assert far.arrow_patch.shrinkB > 0


def sides(ax, role):
    """Width and height of each rectangle that a role has, top to bottom."""
    edge = figures.COLORS[figures.ROLES[role]].lower()
    drawn = [
        (round(p.get_y(), 2), round(p.get_x(), 2), p)
        for p in ax.patches
        if not p.get_fill() and to_hex(p.get_edgecolor()) == edge
    ]
    drawn.sort(key=lambda one: one[:2])
    return [(p.get_width(), p.get_height()) for *_, p in drawn]


def test_shape_flow_draws_sides_that_fit_one_another():
    ax = figures.shape_flow(
        [
            {"x": "stream B T D"},
            {"q": "query B H T Dh"},
            {"a": "weight B H T S"},
            {"h": "ffn B T Dff"},
            {"y": "stream B T D"},
        ],
        {"x → q": "cut", "q → a": "", "a → h": "", "x, h → y": "join"},
        heads=3,
        d_model=0.9,
    )
    (x, y), heads = sides(ax, "stream"), sides(ax, "query")
    assert x == y
    assert len(heads) == len(sides(ax, "weight")) == 3
    assert sum(width for width, _ in heads) == pytest.approx(x[0]) == 0.9
    assert sides(ax, "ffn") == [(pytest.approx(3.6), x[1])]
    assert {"cut", "join", "(B, H, T, Dh)"} <= set(words(ax))
    assert words(ax).count("+") == 1  # x goes on, and h is added
    # The controls: one tensor alone adds nothing, and no other is known.
    rows = [{"x": "stream B T D"}, {"y": "stream B T D"}]
    assert "+" not in words(figures.shape_flow(rows, {"x → y": "norm"}))
    with pytest.raises(ValueError, match="'z'"):
        figures.shape_flow(rows, {"z → y": "norm"})


def test_shape_flow_stacks_heads_or_cuts_them():
    rows = [{"q": "query B H T Dh"}, {"x": "stream B T H Dh"}]
    beside = figures.shape_flow(rows, {"q → x": ""}, heads=3)
    behind = figures.shape_flow(rows, {"q → x": ""}, heads=3, stacked=True)

    def corners(ax):
        color = figures.COLORS[figures.ROLES["query"]].lower()
        return {
            (round(p.get_x(), 3), round(p.get_y(), 3))
            for p in ax.patches
            if not p.get_fill() and to_hex(p.get_edgecolor()) == color
        }

    assert len(corners(beside)) == len(corners(behind)) == 3
    assert len({y for _, y in corners(beside)}) == 1
    assert len({y for _, y in corners(behind)}) == 3
    assert "H" in words(behind)
    assert "H" not in words(beside)


def crossed(ax):
    """Texts through which a line goes, or that leave the picture."""
    ax.figure.draw_without_rendering()
    renderer = ax.figure.canvas.get_renderer()
    lines = [ax.transData.transform(one.get_xydata()) for one in ax.lines]
    found = []
    for text in ax.texts:
        if text.get_text().strip(" +"):
            area = Text.get_window_extent(text, renderer)
            inside = area.x1 <= ax.figure.bbox.x1 and area.x0 >= 0
            cut = (
                area.count_overlaps([Bbox([start, end])])
                for line in lines
                for start, end in pairwise(line)
            )
            if any(cut) or not inside:
                found.append(text.get_text())
    return found


PAGES = Path(__file__).parents[2] / "book"
SHAPED = {
    page: re.search(
        r"^ax = (figures\.shape_flow\(\n.*?^\))",
        (PAGES / f"{page}.md").read_text("utf8"),
        re.DOTALL | re.MULTILINE,
    )[1]
    for page in ("04_attention", "06_multihead", "09_decoder", "notation")
}


@pytest.mark.parametrize("page", SHAPED)
def test_shape_flow_of_a_page_can_be_read(page):
    ax = eval(SHAPED[page], {"figures": figures})
    ax.figure.draw_without_rendering()
    assert not overlaps(ax.texts, ax.figure.canvas.get_renderer())
    assert not crossed(ax)
    assert min(text.get_size() for text in ax.texts) >= 11


def test_a_crossed_text_is_found():
    long = SHAPED["04_attention"].replace("softmax", "softmax of each row")
    assert crossed(eval(long, {"figures": figures})) == [
        "q @ kᵀ, softmax of each row"
    ]


def test_nested_boxes_lie_in_their_box():
    tree = ["whole", "first", ["stream: middle", "left", "ffn: right"]]
    ax = figures.nested(tree)
    frames = [p.get_bbox() for p in ax.patches if not p.get_fill()]
    whole, first, middle, left, right = frames
    assert words(ax) == ["whole", "first", "middle", "left", "right"]

    def contains(outer, inner):
        corners = (inner.x0, inner.y0), (inner.x1, inner.y1)
        return all(outer.contains(*corner) for corner in corners)

    assert all(contains(whole, one) for one in frames[1:])
    assert contains(middle, left)
    assert contains(middle, right)
    assert first.y1 < middle.y0
    assert left.x1 < right.x0
    # The control: what is no part lies outside.
    assert not contains(middle, first)
