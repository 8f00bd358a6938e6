"""What is drawn is what was computed, and can be read."""

import math
from io import BytesIO
from xml.etree import ElementTree

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from coursekit.classroom import figures

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
    assert positive.images[0].get_clim() == (0.0, 2.0)
    signed = figures.heatmap(torch.tensor([[-3.0, 2.0]]))
    assert signed.images[0].get_clim() == (-3.0, 3.0)


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
    for number in ("5", "3", "2.50", "1.50", "0.73", "0.27"):
        assert number in written
    # The mixed value, (2.46 0.27 0.73 0.54), closes the picture.
    mixed = [w for w in written if w in ("2.5", "0.3", "0.7", "0.5")]
    assert {"0.3", "0.7", "0.5"} <= set(mixed)


def test_attention_steps_has_a_softmax_along_rows():
    scores, weights, output = figures.attention_steps(Q, K, V, ["a", "b"])
    panels = (scores, weights, output)
    first, second, third = (ax.images[0].get_array().data for ax in panels)
    assert first.tolist() == [[1.5, 1.0], [2.5, 1.5]]
    assert second.sum(axis=1) == pytest.approx([1, 1])
    assert second.sum(axis=0) != pytest.approx([1, 1], abs=0.1)
    assert third[1] == pytest.approx([2.46, 0.27, 0.73, 0.54], abs=5e-3)


def test_attention_steps_hides_what_the_mask_hides():
    mask = torch.tensor([[True, False], [True, True]])
    names = ["a", "b"]
    scores, weights, output = figures.attention_steps(Q, K, V, names, mask)
    assert weights.images[0].get_array().data[0].tolist() == [1, 0]
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


@pytest.mark.parametrize("name", ["ladder", "pipeline"])
def test_an_unknown_place_is_refused(name):
    draw = {
        "ladder": lambda: figures.ladder(rungs(3.0), current="zzz"),
        "pipeline": lambda: figures.pipeline({"text": ""}, current="zzz"),
    }[name]
    with pytest.raises(ValueError, match="'zzz'"):
        draw()


def test_pipeline_is_read_from_top_to_bottom():
    stages = {"text": "7 letters", "tokens": "3 numbers", "logits": "V"}
    ax = figures.pipeline(stages, current="tokens", loop="again")
    heights = {t.get_text(): t.get_position()[1] for t in ax.texts}
    assert heights["text"] < heights["tokens"] < heights["logits"]
    assert heights["3 numbers"] == heights["tokens"]
    bottom, top = ax.get_ylim()
    assert bottom > top
    bold = [t.get_text() for t in ax.texts if t.get_weight() == "bold"]
    assert bold == ["tokens"]
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
