"""The walk: its states are minimal.py's, and its page does what it says.

The oracle is `minimal.py`: hooks keep what its modules compute, and where the
walk changes the model, one line of the file is changed.
"""

import functools
import json
import math
import re
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pypdfium2
import pytest
import test_live
import test_pages
import torch
from PIL import Image
from test_pages import axe

import coursekit
from coursekit import minimal
from coursekit.saved_models import find_model
from coursekit.tokenizer import BPETokenizer
from coursekit_classroom import lesson, live
from coursekit_classroom.live import strip, walk
from coursekit_classroom.yourfile.saving import to_library

ROOT = Path(__file__).resolve().parents[2]

page = test_live.page
pytestmark = pytest.mark.xdist_group("walk")

CLOSE = 1e-5
LEVELS = ("model", "block", "head", "dot")
SIZES = {"context": 29, "d_model": 35, "n_heads": 5, "n_blocks": 3}
TEXT = "The cat sat. The"
SWAP = "cat dog"
WATCH = """([path, ids, changes]) => {
  const plain = (x) => (x?.buffer ? Array.from(x) : Array.isArray(x)
    ? x.map(plain) : x && typeof x === "object" ? Object.fromEntries(
      Object.entries(x).map(([key, value]) => [key, plain(value)])) : x);
  const {model} = loaded[path], {watch} = coursekitLive;
  const found = watch(model, ids, changes);
  const quick = watch(model, ids, changes, watch(model, ids));
  if (JSON.stringify(plain(found)) !== JSON.stringify(plain(quick)))
    throw new Error("blocks before the change are not what they were");
  return plain(found);
}"""


def tokenizer():
    return BPETokenizer([bytes([i]) for i in range(256)])


def gpt(file=minimal, seed=0):
    """A GPT of the file whose parts all matter."""
    torch.manual_seed(seed)
    model = file.GPT(vocab_size=256, **SIZES)
    with torch.no_grad():
        for weight in model.parameters():
            size = 0.1 if weight.dim() == 1 else 1.2 / math.sqrt(35)
            weight.copy_(
                size * torch.randn(weight.shape) + (weight.dim() == 1)
            )
    return model


def truth(model, ids):
    """What passes through a model of minimal.py, by the walk's names."""
    kept = {"blocks": [{} for _ in model.blocks]}
    handles = []

    def keep(place, name, module, inputs=False):
        def hook(_, given, output):
            found = given[0] if inputs else output
            place[name] = found[0]

        handles.append(module.register_forward_hook(hook))

    keep(kept, "embedded", model.embedding)
    for block, place in zip(model.blocks, kept["blocks"], strict=True):
        keep(place, "input", block, inputs=True)
        keep(place, "normed", block.norm_1)
        for name, module in (("q", "query"), ("k", "key"), ("v", "value")):
            keep(place, name, getattr(block.attention, module))
        keep(place, "joined", block.attention.output, inputs=True)
        keep(place, "attended", block.attention)
        keep(place, "middle", block.norm_2, inputs=True)
        keep(place, "normed2", block.norm_2)
        keep(place, "hidden", block.feed_forward.hidden)
        keep(place, "active", block.feed_forward.output, inputs=True)
        keep(place, "written", block.feed_forward)
        keep(place, "output", block)
    with torch.no_grad():
        kept["logits"] = model(torch.tensor([ids]))[0]
    for handle in handles:
        handle.remove()
    kept["x"] = kept["blocks"][0]["input"]
    kept["positions"] = model.positions.weight[: len(ids)].detach()
    mask = minimal.causal_mask(len(ids), len(ids))
    for place in kept["blocks"]:
        for name in "qkv":
            place[name] = place[name].unflatten(1, (5, 7)).transpose(0, 1)
        joined = place.pop("joined")
        place["heads"] = joined.unflatten(1, (5, 7)).transpose(0, 1)
        scores = place["q"] @ place["k"].mT / math.sqrt(7)
        place["scores"] = scores
        hidden = scores.masked_fill(~mask, -math.inf)
        place["weights"] = hidden.softmax(-1)
    return kept


@pytest.fixture(scope="module")
def ids():
    return tokenizer().encode(TEXT)


@pytest.fixture(scope="module")
def path(page):
    return test_live.put(page, to_library(gpt()).eval(), tokenizer(), "walk")


def far(ours, theirs):
    """The largest difference; infinite if the shapes differ."""
    ours = torch.tensor(ours)
    if ours.shape != theirs.shape:
        return math.inf
    return float((ours - theirs).abs().max())


# -- the states --------------------------------------------------------------
def test_every_state_is_that_of_minimal(page, path, ids):
    ours = page.evaluate(WATCH, [path, ids, {}])
    theirs = truth(gpt(), ids)
    for name in ("embedded", "positions", "x", "logits"):
        assert far(ours[name], theirs[name]) < CLOSE, name
    assert len(ours["blocks"]) == 3
    for mine, block in zip(ours["blocks"], theirs["blocks"], strict=True):
        assert set(mine) == set(block)
        for name in block:
            assert far(mine[name], block[name]) < CLOSE, name
    shares = torch.tensor(ours["logits"]).softmax(-1)
    assert far(shares.tolist(), theirs["logits"].softmax(-1)) < CLOSE


def test_a_state_of_another_step_is_another(page, path, ids):
    """A control: neighbors in the walk are told apart by the comparison."""
    ours = page.evaluate(WATCH, [path, ids, {}])["blocks"][1]
    theirs = truth(gpt(), ids)["blocks"]
    for name, other in (
        ("input", "normed"),
        ("q", "k"),
        ("k", "v"),
        ("scores", "weights"),
        ("attended", "middle"),
        ("middle", "output"),
        ("hidden", "active"),
    ):
        assert far(ours[name], theirs[1][name]) < CLOSE
        assert far(ours[name], theirs[1][other]) > 100 * CLOSE, name
        assert far(ours[name], theirs[0][name]) > 100 * CLOSE, name


SET = {"block": 0, "head": 3, "query": 9, "key": 4, "share": 0.7}
# What the walk can change, as an edit of minimal.py's text.
EDITS = {
    "root": ({"root": False}, [(" / math.sqrt(q.size(-1))", "")]),
    "mask": (
        {"mask": False},
        [("    scores = scores.masked_fill(~mask, -math.inf)\n", "")],
    ),
    "cut": (
        {"cut": [0, 1, 2]},
        [("x = x + self.attention(", "x = self.attention(")],
    ),
    "straight": (
        {"straight": [0, 1, 2]},
        [("nn.functional.gelu(self.hidden(x))", "self.hidden(x)")],
    ),
    "muted": (
        {"muted": [[0, 2], [1, 2], [2, 2]]},
        [
            (
                "        heads = attention(q, k, v, mask)\n",
                "        heads = attention(q, k, v, mask)\n"
                "        heads[:, 2] = 0\n",
            )
        ],
    ),
    "weight": (
        {"weight": SET},
        [
            (
                "    return scores.softmax(-1) @ v\n",
                "    p = scores.softmax(-1)\n"
                "    if not getattr(attention, 'done', False):\n"
                "        attention.done = True\n"
                "        row = p[0, 3, 9].clone()\n"
                "        p[0, 3, 9] = row * 0.3 / (1 - row[4])\n"
                "        p[0, 3, 9, 4] = 0.7\n"
                "    return p @ v\n",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_change_does_what_an_edit_of_minimal_does(page, path, ids, name):
    changes, edits = EDITS[name]
    ours = page.evaluate(WATCH, [path, ids, changes])["logits"]
    edited = gpt(lesson.load(lesson.LAST_CHAPTER, edits))
    with torch.no_grad():
        theirs = edited(torch.tensor([ids]))[0]
        intact = gpt()(torch.tensor([ids]))[0]
    assert far(ours, theirs) < 10 * CLOSE
    assert far(ours, intact) > 1e-3  # it matters


def test_one_block_alone_is_changed(page, path, ids):
    """What comes before the change stays as it was."""
    intact = page.evaluate(WATCH, [path, ids, {}])
    for changes in ({"cut": [1]}, {"straight": [1]}, {"muted": [[1, 0]]}):
        ours = page.evaluate(WATCH, [path, ids, changes])
        assert ours["blocks"][0] == intact["blocks"][0]
        assert ours["blocks"][1]["q"] == intact["blocks"][1]["q"]
        assert ours["blocks"][2] != intact["blocks"][2]


def test_another_kind_of_model_is_refused(page, ids):
    config = test_live.GPTConfig(**test_live.small(positions="rope"))
    path = test_live.put(page, test_live.GPT(config), name="rope")
    with pytest.raises(Exception, match=r"built as minimal\.py's"):
        page.evaluate(WATCH, [path, [1, 2], {}])


def test_the_strip_shows_the_same_numbers(ids):
    names = [str(i) for i in ids]
    found = strip.states(to_library(gpt()).eval(), ids, names, block=1)
    theirs = truth(gpt(), ids)
    block = theirs["blocks"][1]
    for name, other in {
        "x": theirs["x"][-1],
        "embedded": theirs["embedded"][-1],
        "entered": block["input"][-1],
        "normed": block["normed"][-1],
        "q": block["q"][:, -1],
        "k": block["k"],
        "v": block["v"],
        "weights": block["weights"][:, -1],
        "attended": block["attended"][-1],
        "hidden": block["active"][-1],
        "written": block["written"][-1],
    }.items():
        assert far(getattr(found, name).tolist(), other) < CLOSE, name
    assert far(found.logits[-1].tolist(), theirs["logits"][-1]) < CLOSE


def test_the_levels_show_the_same_numbers(ids):
    """The four still pictures, and, as a control, another head's."""
    model = to_library(gpt()).eval()
    b, h = strip.pointing(model, ids)
    block = truth(gpt(), ids)["blocks"][b]
    axes = strip.levels(model, tokenizer(), TEXT).figure.axes
    bars = [bar.get_height() for bar in axes[3].patches]
    key = int(block["weights"][h, -1].argmax())
    assert far(bars, block["q"][h, -1] * block["k"][h, key]) < CLOSE
    assert far(bars, block["q"][h - 1, -1] * block["k"][h - 1, key]) > 0.01
    score = f"{block['scores'][h, -1, key]:.2f}".replace("-", "−")
    assert f"score {score}\n" in axes[3].texts[-1].get_text()
    assert len(axes[0].get_yticks()) == len(axes[0].get_yticklabels()) == 3
    plt.close("all")


# -- the lines ---------------------------------------------------------------
def test_the_lines_are_those_of_minimal():
    whole = re.sub(r" *#.*", "", lesson.text(lesson.LAST_CHAPTER))
    lines = {line.strip() for line in whole.splitlines()}
    assert set(walk.LINES) == {*range(1, 13), "loss", *LEVELS}
    for step in walk.LINES:
        assert {line.strip() for line in walk.code(step).splitlines()} <= lines
    assert "math.sqrt" in walk.code(5)


def test_a_line_that_is_not_there_is_found(monkeypatch):
    for name, text in (("attention", "none"), ("GPT.forward", "past")):
        monkeypatch.setattr(walk, "LINES", {1: ((name, (text,)),)})
        with pytest.raises(ValueError, match=r"named by text .* \d lines"):
            walk.code(1)


def test_the_page_begins_at_the_head_that_points():
    """The page's sentence, words and head are the model's example."""
    folder = find_model("stories")
    given = json.loads((folder / "examples.json").read_text("utf8"))["walk"]
    text = (test_live.BOOK / "walk.md").read_text("utf8")
    options = dict(re.findall(r"^:(\w+): (.*)$", text, re.MULTILINE))
    assert options["text"] == given["prompt"]
    assert options["swap"] == " ".join(given["words"])
    model, tokens = coursekit.load("stories")
    ids = tokens.encode(given["prompt"])
    assert list(strip.pointing(model, ids)) == given["head"]
    assert strip.pointing(model, tokens.encode("Anna")) == (0, 0)


# -- the page ----------------------------------------------------------------
HEAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>'
    '<meta name="viewport" content="width=device-width">'
    '<script src="live.js" defer></script><style>img{max-width:100%}</style>'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walk")
    (folder / "live.js").write_text(live.bundle(), "utf8")
    script = live.export(
        to_library(gpt()).eval(), tokenizer(), folder, "m", "walk", TEXT
    )
    (folder / "walk.html").write_text(
        f'{HEAD}<main><h1>Walk</h1><live-walk model="{script.name}" '
        f'text="{TEXT}" swap="{SWAP}" block="2" head="3"'
        ' vocabulary="{&quot;letters&quot;: [&quot;a&quot;, &quot;b&quot;,'
        ' &quot;ab&quot;]}">'
        f'<img alt="STILL" src="{script.stem}-walk.svg"></live-walk></main>',
        "utf8",
    )
    return folder


class Walker(test_pages.Visit):
    """A reader of the walk."""

    def at(self, address="", kind="live-walk"):
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}walk.html{address}")
        self.page.wait_for_selector(f"{kind}[data-state=ready]")
        return self

    stopped = False

    def stop_clock(self):
        """Open the walk; from then on its time passes when it is told to."""
        self.page.clock.install()
        self.at()
        self.page.clock.pause_at(datetime.now() + timedelta(hours=1))
        self.stopped = True

    @property
    def url(self):
        """As the page has it; playwright hears of a change later."""
        return self.page.evaluate("location.href")

    def sentence(self):
        return self.page.locator(".live-sentence").text_content()

    def state(self):
        return self.page.evaluate(
            "() => { const {key, ...state} ="
            " document.querySelector('live-walk').state; return state; }"
        )

    def changed(self):
        """The likeliest token's share before and after, in percent."""
        text = self.page.locator(".walk-change").text_content()
        shares = re.findall(r"([\d.]+)% (?:before|now)", text)
        return [float(share) for share in shares]


@pytest.fixture
def walker(browser, folder):
    visits = []

    def start(width=1280, scheme="light"):
        base = folder.as_uri() + "/"
        visit = Walker(browser, base, width, scheme)
        visit.base = base
        visits.append(visit)
        return visit

    yield start
    for visit in visits:
        assert visit.wrong == []
        if visit.stopped:  # closing the page would wait for its clock
            visit.page.clock.resume()
        visit.close()


def test_twelve_steps_by_keyboard(walker):
    reader = walker().at()
    scrubber = reader.page.get_by_role("slider", name="Step")
    scrubber.focus()
    said = [reader.sentence()]
    for step in range(2, 13):
        reader.page.keyboard.press("ArrowRight")
        assert f"step={step}" in reader.url
        text = scrubber.get_attribute("aria-valuetext")
        assert text.startswith(f"Step {step} of 12: ")
        code = reader.page.locator(".walk-lines pre").text_content()
        assert code == walk.code(step)
        said.append(reader.sentence())
    assert len(set(said)) == 12
    assert not any("undefined" in text or "{" in text for text in said)
    reader.page.keyboard.press("Home")
    assert reader.sentence() == said[0]
    reader.pass_time(700)
    assert reader.page.locator(".live-spoken").text_content() == said[0]
    press = functools.partial(reader.page.get_by_role, "button", exact=True)
    for _ in range(3):
        press(name="Next").press("Enter")
    assert reader.sentence() == said[3]
    press(name="Back").press("Enter")
    assert reader.sentence() == said[2]


def test_the_page_begins_where_the_strip_does(walker, folder):
    """If neither is told which head to show."""
    whole = (folder / "walk.html").read_text("utf8")
    model = to_library(gpt()).eval()
    for text in (TEXT, "the the the", "a"):
        page = whole.replace(' block="2" head="3"', "").replace(TEXT, text)
        (folder / "walk.html").write_text(page, "utf8")
        state = walker().at().state()
        found = strip.pointing(model, tokenizer().encode(text))
        assert (state["block"], state["head"]) == found
    (folder / "walk.html").write_text(whole, "utf8")


def test_arrow_keys_read_the_numbers(walker, ids):
    """The first rows of step 3 are E's, P's and x's."""
    reader = walker().at("#walk=cat&step=2")
    picture = reader.page.get_by_role("group", name="Picture of the step")
    readout = reader.page.locator(".walk-readout")
    picture.focus()
    reader.page.keyboard.press("ArrowRight")  # into the picture
    reader.page.keyboard.press("ArrowRight")
    row = gpt().embedding.weight[ids[-1] - 2]
    number = f"{row[1].item():.2f}".replace("-", "−")
    expected = f"E[{ids[-1] - 2}], dimension 2: {number}"
    assert readout.text_content() == expected
    reader.pass_time(500)
    assert reader.page.locator(".live-spoken").text_content() == expected
    for _ in range(9):
        reader.page.keyboard.press("ArrowDown")
    assert readout.text_content().startswith("x, dimension 2: ")


def test_a_number_of_the_query_shows_what_adds_up_to_it(walker, ids):
    reader = walker().at("#walk=cat&step=4&token=10")
    block = truth(gpt(), ids)["blocks"][1]
    total = reader.page.locator(".walk-picture svg > g text.walk-strong")
    on = reader.page.locator(".walk-picture .walk-on")
    assert on.count() == 0
    for row, letter in ((4, "q"), (6, "v")):
        made = reader.page.locator(".walk-picture .walk-cells").nth(row)
        made.locator(".walk-cell").nth(4).hover()
        expected = block[letter][2, 9]
        shown = float(total.text_content().replace("−", "-"))
        assert shown == pytest.approx(expected[4].item(), abs=0.0051)
        assert shown != pytest.approx(expected[3].item(), abs=0.01)
        assert on.count() == 17  # it, and what it is made of
    assert "WV[5]" in reader.page.locator(".walk-picture").text_content()


ADDRESSES = [
    "#walk=cat&step=5&token=3&block=3&head=5",
    "#walk=dog&step=8&mute=1.3,2.5",
    "#walk=cat&step=6&token=9&root=off&mask=off",
    "#walk=cat&step=9&cut=2,3&straight=1",
    "#walk=cat&step=7&weight=2.3.4.70",
    "#walk=cat&step=12&temperature=1.5",
    "#walk=cat&step=12&temperature=0.7&top-p=0.85",
    "#walk=cat&step=12&truth=104&push=3",
    "#walk=cat&step=3&put=5.115,9.99",
    "#walk=cat&step=11&block=3&beside=1",
    "#walk=cat&step=9&trace=x.15.3.7",
    "#walk=cat&step=2&zoom=model&token=9",
    "#walk=dog&step=5&zoom=dot&token=9&block=3&head=2&key=16&mask=off",
    "#walk=%C3%BCber+%22so%22+%26+1%2B1&step=5&token=4",
    "#walk=+dog&step=2",  # the reader's word, not the page's
    "#walk=A+cow+ran&step=8&put=3.98&block=1&mute=1.2",
]


def test_an_address_holds_the_state(walker):
    reader = walker()
    slider = reader.page.get_by_role("slider", name="Step")
    for address in ADDRESSES:
        state = reader.at(address).state()
        if "trace" in address or "zoom" in address:  # another step closes it
            reader.page.evaluate("document.querySelector('live-walk').write()")
        else:
            slider.press("ArrowLeft")
            slider.press("ArrowRight")
        assert reader.url.endswith(address)
        assert reader.state() == state, address
        assert state["step"] == int(re.search(r"step=(\d+)", address)[1])
        reader.page.get_by_role("button", name="Start again").click()
        assert reader.url.endswith("#walk=cat&step=1")
        reader.page.evaluate("a => { location.hash = a; }", address)
        reader.page.wait_for_function(
            "step => document.querySelector('live-walk').state.step === step",
            arg=state["step"],
        )
        assert reader.state() == state, address


ODD_ADDRESSES = {
    "#walk-7": 7,
    "#walk=bird&step=99&token=-3&block=x&mute=9.9,&weight=1&push=1e9"
    "&put=3,99.9,1.999&truth=-4&beside=0&top-p=7&trace=x.1.2"
    "&zoom=cell&key=0": 12,
    "#walk=&step=12&trace=logit.999.0&put=x.y&temperature=": 12,
    "#walk=cat&step=12&trace=constructor.1": 12,
    "#fragment": 1,
}


def test_an_odd_address_is_no_error(walker):
    reader = walker()
    for address, step in ODD_ADDRESSES.items():
        assert reader.at(address).state()["step"] == step, address


def name_of(i):
    """A byte as the walk shows it: a sign, or two digits."""
    shown = {10: "↵", 32: "␣"}
    return shown.get(i) or (chr(i) if i < 128 else f"{i:02X}")


def test_a_chapter_s_link_leads_to_the_loss(walker):
    state = walker().at("#walk-loss").state()
    best = int(shares(gpt(), TEXT).argmax())
    assert (state["step"], state["truth"]) == (12, best)


def shares(model, text, token=-1):
    ids = torch.tensor([tokenizer().encode(text)])
    with torch.no_grad():
        return model(ids)[0, token].softmax(-1)


@pytest.mark.parametrize(
    ("step", "box", "edits"),
    [(5, "÷ √Dh", EDITS["root"][1]), (6, "causal mask", EDITS["mask"][1])],
)
def test_the_answer_changes_as_pytorch_says(walker, step, box, edits):
    reader = walker().at(f"#walk=cat&step={step}&token=9")
    reader.page.get_by_role("checkbox", name=box).press("Space")
    edited = gpt(lesson.load(lesson.LAST_CHAPTER, edits))
    before, after = shares(gpt(), TEXT, 8), shares(edited, TEXT, 8)
    best = before.argmax()
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)
    focused = reader.page.evaluate("document.activeElement.dataset.name")
    assert focused == ("root" if step == 5 else "mask")
    reader.page.get_by_role("button", name="Undo changes").click()
    assert reader.changed() == []


def test_a_muted_head_and_a_swapped_word(walker):
    reader = walker().at("#walk=cat&step=8")
    effects = reader.page.locator(".walk-picture svg text.walk-end")
    reader.page.wait_for_function(
        "!document.querySelector('.walk-picture').textContent.includes('…0')"
    )
    assert effects.count() > 1
    reader.page.get_by_role("checkbox", name="head 3").uncheck()
    assert "mute=2.3" in reader.url
    model = gpt()
    before = shares(model, TEXT)
    output = model.blocks[1].attention.output

    def mute(_, given):
        joined = given[0].clone()
        joined[..., 14:21] = 0
        return (joined,)

    output.register_forward_pre_hook(mute)
    after, best = shares(model, TEXT), before.argmax()
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)
    reader.page.get_by_role("button", name="Undo changes").click()
    reader.page.get_by_label("Word").select_option("dog")
    after = shares(gpt(), TEXT.replace("cat", "dog"))
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)


def test_a_weight_is_set_by_the_slider(walker):
    reader = walker().at("#walk=cat&step=7")
    slider = reader.page.get_by_role("slider", name="Weight of")
    slider.focus()
    reader.page.keyboard.press("End")
    reader.page.wait_for_url(re.compile(r"weight=2\.3\.\d+\.100$"))
    reader.page.keyboard.press("ArrowLeft")  # it is the same slider still
    reader.page.wait_for_url(re.compile(r"\.99$"))
    assert len(reader.changed()) == 2


def test_a_bar_is_dragged(walker, ids):
    """The weight is as long as the bar, and the answer is minimal.py's."""
    reader = walker().at("#walk=cat&step=7&token=10&block=1&head=4")
    bar = reader.page.locator(".walk-drag").nth(4)
    box = bar.bounding_box()
    y = box["y"] + box["height"] / 2
    mouse = reader.page.mouse
    mouse.move(box["x"] + 5, y)
    mouse.down()
    mouse.move(box["x"] + 0.4 * box["width"], y)
    mouse.move(box["x"] + 0.7 * box["width"], y)
    mouse.up()
    reader.page.wait_for_url(re.compile(r"&weight=1\.4\.5\.70"))
    slider = reader.page.get_by_role("slider", name="Weight of “c”")
    assert slider.input_value() == "70"
    edited = gpt(lesson.load(lesson.LAST_CHAPTER, EDITS["weight"][1]))
    before, after = shares(gpt(), TEXT, 9), shares(edited, TEXT, 9)
    best = before.argmax()
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)
    assert abs(before[best] - after[best]) > 0.01  # a control
    reader.page.get_by_role("button", name="Undo changes").click()
    bar.click()  # a press is no drag
    assert reader.changed() == []


def test_a_token_is_drawn(walker):
    reader = walker().at("#walk=cat&step=12&temperature=0.1&top-p=0.05")
    draw = reader.page.get_by_role("button", name="Draw a token")
    draw.press("Enter")
    assert " was drawn. " in reader.sentence()
    best = int(shares(gpt(), TEXT).argmax())
    assert f"“{name_of(best)}” was drawn" in reader.sentence()
    focused = reader.page.evaluate("document.activeElement.dataset.name")
    assert focused == "draw"


def test_words_change_places(walker, ids):
    """E moves, P stays; the answer is that of the other text."""
    reader = walker().at("#walk=cat&step=3&token=5")
    picture = ".walk-picture svg .walk-cells"
    rows = "rows => rows.map(row => row.innerHTML.replace(/[xy]=.+?\" /g, ''))"
    assert "different" not in reader.sentence()
    other = reader.page.get_by_label("Change places with")
    other.select_option("9: s")
    assert reader.url.endswith("#walk=cat&step=3&put=5.115,9.99&token=5")
    assert "“s”, now at position 5, and “c”, now at position 9" in (
        reader.sentence()
    )
    moved = list(ids)
    moved[4], moved[8] = ids[8], ids[4]
    found = reader.page.evaluate(STATES)
    theirs = truth(gpt(), moved)
    for name in ("embedded", "positions", "x", "logits"):
        assert far(found[name], theirs[name]) < CLOSE, name
    assert far(found["x"], truth(gpt(), ids)["x"]) > 0.01  # they moved
    # E, P and x of both positions, and where the rows of E come from.
    assert reader.page.locator(picture).count() == 6
    assert len(set(reader.page.eval_on_selector_all(picture, rows))) == 6
    slides = reader.page.locator(".walk-entered .walk-slide")
    assert slides.count() == 2
    swapped = bytes(moved).decode()
    before, after = shares(gpt(), TEXT, 4), shares(gpt(), swapped, 4)
    best = before.argmax()
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)
    other = reader.page.get_by_label("Change places with")
    assert other.input_value() == "8"
    other.select_option("no other")
    assert reader.url.endswith("#walk=cat&step=3&token=5")
    assert reader.changed() == []


STATES = """() => {
  const {states} = document.querySelector("live-walk").walk;
  const plain = (rows) => rows.map((row) => Array.from(row));
  return {embedded: plain(states.embedded), x: plain(states.x),
    positions: plain(states.positions), logits: plain(states.logits),
    last: plain(states.blocks.at(-1).output)};
}"""


def test_two_blocks_side_by_side(walker):
    reader = walker().at("#walk=cat&step=11&block=1")
    reader.page.get_by_label("Next to it").focus()
    reader.page.get_by_label("Next to it").select_option("3")
    assert reader.url.endswith("#walk=cat&step=11&block=1&beside=3")
    focused = reader.page.evaluate("document.activeElement.dataset.name")
    assert focused == "beside"
    model, found = gpt(), truth(gpt(), tokenizer().encode(TEXT))
    with torch.no_grad():
        lens = [
            model.unembed(model.norm(block["output"][-1])).softmax(-1)
            for block in found["blocks"]
        ]
    said = re.findall(r"“(.{1,2})” \((.+?)%\)", reader.sentence())
    for (name, share), own in zip(said, (lens[0], lens[2]), strict=True):
        assert name == name_of(int(own.argmax()))
        assert float(share) == pytest.approx(100 * own.max(), abs=0.51)
    lengths = reader.page.locator(".walk-picture text", has_text="length")
    shown = [float(t.split()[-1]) for t in lengths.all_text_contents()]
    expected = [
        found["blocks"][b][name][-1].norm().item()
        for b in (0, 2)
        for name in ("attended", "written")
    ]
    assert shown == pytest.approx(expected, abs=0.051)


# minimal.py's sample with the probabilities that it draws from.
DRAWN_FROM = [
    (
        "return tokens.gather(-1, torch.multinomial(p, 1))",
        "return torch.zeros_like(p).scatter(-1, tokens, p / p.sum())",
    )
]


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 0.5), (0.7, 0.85), (2.0, 1.0)]
)
def test_what_is_drawn_from_is_what_minimal_draws_from(
    page, path, ids, temperature, top_p
):
    edited = lesson.load(lesson.LAST_CHAPTER, DRAWN_FROM)
    logits = truth(gpt(), ids)["logits"][-1]
    expected = edited.sample(logits, temperature, top_p)
    ours = page.evaluate(
        "([logits, how]) => [...coursekitLive.filtered("
        "Float32Array.from(logits), how)]",
        [logits.tolist(), {"temperature": temperature, "topP": top_p}],
    )
    assert far(ours, expected) < CLOSE
    if top_p < 1:
        assert 0 < int((expected > 0).sum()) < 256
    assert far(ours, logits.softmax(-1)) > 1e-3  # a control


def test_top_p_leaves_the_likeliest(walker):
    reader = walker().at("#walk=cat&step=12")
    slider = reader.page.get_by_role("slider", name="Top-p")
    slider.focus()
    for _ in range(12):
        reader.page.keyboard.press("ArrowLeft")
    reader.page.wait_for_url(re.compile(r"top-p=0\.4$"))
    p = shares(gpt(), TEXT).sort(descending=True).values
    left = int((p.cumsum(-1) - p < 0.4).sum())
    assert f"Of 256 tokens, {left} are left" in reader.sentence()


def test_the_loss_and_its_gradient_are_those_of_pytorch(page, path, ids):
    logits = truth(gpt(), ids)["logits"][-1].requires_grad_()
    loss = minimal.cross_entropy(logits[None], torch.tensor([104]))
    loss.backward()
    ours = page.evaluate(
        "([logits, id]) => { const z = Float32Array.from(logits); return ["
        "coursekitLive.crossEntropy(z, id),"
        "[...coursekitLive.lossGradient(z, id)]]; }",
        [logits.tolist(), 104],
    )
    assert ours[0] == pytest.approx(loss.item(), abs=CLOSE)
    assert far(ours[1], logits.grad) < CLOSE
    assert far(ours[1], logits.detach().softmax(-1)) > 0.5  # without y


def test_the_true_token_is_given_and_pushed(walker, ids):
    reader = walker().at("#walk=cat&step=12&token=3")
    known = reader.page.get_by_label("True token")
    known.select_option("␣")  # what the text goes on with
    assert f"truth={ids[3]}" in reader.url
    code = reader.page.locator(".walk-lines pre").text_content()
    assert code == walk.code("loss")
    logits = truth(gpt(), ids)["logits"][2].clone().requires_grad_()
    target = torch.tensor([ids[3]])
    listed = logits.topk(8).indices.tolist()
    if ids[3] not in listed:
        listed[7] = ids[3]
    for _ in range(3):
        loss = minimal.cross_entropy(logits[None], target)
        assert f"{loss.item():.2f}" in reader.sentence()
        (gradient,) = torch.autograd.grad(loss, logits)
        numbers = reader.page.locator(".walk-picture .walk-spot")
        shown = [
            float(t.replace("−", "-")) for t in numbers.all_text_contents()
        ]
        assert shown == pytest.approx(gradient[listed].tolist(), abs=0.006)
        reader.page.get_by_role("button", name="Push the logits").press(
            "Enter"
        )
        logits = (logits - gradient).detach().requires_grad_()
    assert "push=3" in reader.url
    assert not reader.page.get_by_role("slider", name="Top-p").is_visible()
    reader.page.get_by_label("True token").select_option("not given")
    assert reader.url.endswith("#walk=cat&step=12&token=3")


def test_the_drawn_token_goes_on_with_the_text(walker):
    reader = walker().at(
        "#walk=cat&step=12&token=6&temperature=0.1&top-p=0.05"
    )
    reader.page.emulate_media(reduced_motion="reduce")
    drawn = int(shares(gpt(), TEXT, 5).argmax())
    longer = TEXT.encode()[:6] + bytes([drawn])
    draw = reader.page.get_by_role("button", name="Draw a token")
    assert not reader.page.get_by_role("button", name="Go on").is_visible()
    draw.press("Enter")
    go_on = f"Go on with “{name_of(drawn)}”"
    reader.page.get_by_role("button", name=go_on).press("Enter")
    state = reader.state()
    assert (state["step"], state["token"]) == (1, len(longer) - 1)
    moving = "() => document.getAnimations().length"
    assert reader.page.evaluate(moving) == 0
    focused = reader.page.evaluate("document.activeElement.textContent")
    assert focused == "Next"
    if drawn >= 128:
        return  # half a letter is not a text
    assert state["text"] == longer.decode()
    theirs = truth(gpt(), list(longer))
    assert (
        far(reader.page.evaluate(STATES)["logits"], theirs["logits"]) < CLOSE
    )


def test_ones_own_text(walker):
    reader = walker().at()
    box = reader.page.get_by_label("Text: type your own")
    assert box.input_value() == TEXT
    reader.page.keyboard.press("Tab")
    box.focus()
    reader.page.keyboard.press("End")
    reader.page.keyboard.type(" d")
    focused = reader.page.evaluate("document.activeElement.dataset.name")
    assert focused == "text"  # while one types
    own = "A cow ran. It"
    box.fill(own)
    assert reader.state()["text"] == own
    assert reader.state()["token"] == len(own) - 1
    assert not reader.page.get_by_label("Word").is_visible()
    theirs = truth(gpt(), tokenizer().encode(own))
    found = reader.page.evaluate(STATES)
    for name in ("embedded", "positions", "x", "logits"):
        assert far(found[name], theirs[name]) < CLOSE, name
    assert far(found["last"], theirs["blocks"][-1]["output"]) < 10 * CLOSE
    reader.page.wait_for_url(re.compile(r"#walk=A\+cow\+ran\.\+It&step=1$"))
    reader.page.locator("[data-name=token]").select_option("3: c")
    place = reader.page.get_by_label("In the place of “c”")
    place.focus()
    options = place.locator("option").all_text_contents()
    assert options == ["no other", "a", "b"]  # "ab" would be two tokens
    place.select_option("b")
    assert "put=3.98" in reader.url
    after, before = (shares(gpt(), text, 2) for text in ("A bow", own))
    best = before.argmax()
    expected = [100 * before[best].item(), 100 * after[best].item()]
    assert reader.changed() == pytest.approx(expected, abs=0.51)
    assert box.input_value() == "A bow ran. It"
    address = reader.url.split("#")[1]
    assert walker().at(f"#{address}").state() == reader.state()
    box.fill("")
    assert reader.state()["text"] == ""
    assert (
        far(
            reader.page.evaluate(STATES)["logits"],
            truth(gpt(), [10])["logits"],
        )
        < CLOSE
    )  # an empty line
    box.fill("x" * 30)
    assert "The last 24 tokens are read, and 6 before" in reader.sentence()
    reader.page.get_by_role("button", name="Start again").click()
    assert box.input_value() == TEXT


def test_what_is_no_token_falls_to_bytes(browser, tmp_path):
    """With the book's model: a word that it does not have, and its merges."""
    model, tokens = coursekit.load("stories")
    script = live.export(model, tokens, tmp_path, "stories")
    (tmp_path / "live.js").write_text(live.bundle(), "utf8")
    (tmp_path / "walk.html").write_text(
        f'{HEAD}<live-walk model="{script.name}" text="The dog"></live-walk>',
        "utf8",
    )
    reader = Walker(browser, f"{tmp_path.as_uri()}/", 1280, "light")
    reader.base = f"{tmp_path.as_uri()}/"
    reader.at("#walk=The+dogma+fell.&step=1")
    ids = tokens.encode("The dogma fell.")
    n = len(ids) - 3
    assert n > 1
    assert (
        f"“dogma” is not one of the 1,397 tokens: the model reads it in {n}"
        in reader.sentence()
    )
    rows = reader.page.locator(".walk-picture text.walk-name")
    merged = rows.last.text_content().replace("␣", " ").split()
    assert "".join(merged) == "dogma"
    expected = [tokens.decode([i]).strip() for i in ids[1:-2]]
    assert merged == [part for part in expected if part]
    reader.page.get_by_label("Text: type").fill("The dog fell.")
    assert "is not one of" not in reader.sentence()
    assert reader.wrong == []
    reader.close()


# -- the trace ---------------------------------------------------------------
TRACE = """([path, ids, changes, nodes]) => {
  const {model} = loaded[path], {watch, expand} = coursekitLive;
  const states = watch(model, ids, changes);
  return nodes.map((node) => {
    const found = expand(model, states, node);
    return found && {value: found.value, inner: found.inner ?? found.value,
      sum: found.terms.reduce((sum, {value}) => sum + value, 0),
      products: found.terms.every(({value, factors}) => Math.abs(value
        - factors.reduce((a, b) => a * b, 1)) < 1e-6),
      froms: found.terms.map(({from}) => from),
      values: found.terms.map(({value}) => value)};
  });
}"""


def numbers(theirs, model):
    """Nodes of every kind, with what minimal.py has there."""
    b, t, h, i = 1, 9, 3, 5
    block = theirs["blocks"][b]
    with torch.no_grad():
        last = model.norm(theirs["blocks"][-1]["output"])
    return {
        ("logit", t, 97): theirs["logits"][t, 97],
        ("x", t, 0, i): theirs["x"][t, i],
        ("x", t, 2, i): block["input"][t, i],
        ("x", t, 3, i): block["middle"][t, i],
        ("x", t, 4, i): block["output"][t, i],
        ("norm", t, 2, i): block["normed"][t, i],
        ("norm", t, 3, i): block["normed2"][t, i],
        ("norm", t, 6, i): last[t, i],
        ("att", t, b, i): block["attended"][t, i],
        ("net", t, b, i): block["written"][t, i],
        ("unit", t, b, 77): block["active"][t, 77],
        ("q", t, b, h, i): block["q"][h, t, i],
        ("k", t, b, h, i): block["k"][h, t, i],
        ("v", t, b, h, i): block["v"][h, t, i],
        ("score", t, b, h, 4): block["scores"][h, t, 4],
        ("mix", t, b, h, i): block["heads"][h, t, i],
    }


def test_every_number_is_the_sum_of_its_terms(page, path, ids):
    model = gpt()
    wanted = numbers(truth(model, ids), model)
    found = page.evaluate(TRACE, [path, ids, {}, [list(n) for n in wanted]])
    for (node, value), traced in zip(wanted.items(), found, strict=True):
        assert traced["value"] == pytest.approx(value.item(), abs=CLOSE), node
        assert traced["sum"] == pytest.approx(traced["inner"], abs=CLOSE), node
        assert traced["products"], node
        assert len(traced["froms"]) > 1, node
    unit = found[list(wanted).index(("unit", 9, 1, 77))]
    gelu = torch.nn.functional.gelu(torch.tensor(unit["sum"])).item()
    assert unit["value"] == pytest.approx(gelu, abs=CLOSE)
    # What a term comes from is a number that can be expanded, and that times
    # the other factor is the term.
    for node, traced in zip(wanted, found, strict=True):
        froms = [x for x in traced["froms"] if x and len(x) > 2]
        if node[0] in ("score", "mix", "q", "x"):
            more = page.evaluate(TRACE, [path, ids, {}, froms])
            assert all(each for each in more)
            if node[0] == "x":
                values = [each["value"] for each in more]
                assert values == pytest.approx(traced["values"], abs=CLOSE)


def test_a_sum_of_another_number_is_another(page, path, ids):
    """A control: the terms of a neighbor do not sum to the value."""
    model = gpt()
    nodes = [list(node) for node in numbers(truth(model, ids), model)]
    others = [[*node[:-1], node[-1] + 1] for node in nodes]
    found = page.evaluate(TRACE, [path, ids, {}, nodes])
    wrong = page.evaluate(TRACE, [path, ids, {}, others])
    for own, other, node in zip(found, wrong, nodes, strict=True):
        assert abs(own["inner"] - other["sum"]) > 100 * CLOSE, node
    for bad in (
        ["x", 1, 2],
        ["q", 9, 7, 0, 0],
        ["logit", 0, 999],
        ["x", 99, 0, 0],
        ["none", 1],
        ["logit", 0.5, 1],
        ["E", 3],
        ["toString", 1],
    ):
        assert page.evaluate(TRACE, [path, ids, {}, [bad]]) == [None], bad


@pytest.mark.parametrize("name", EDITS)
def test_sums_hold_in_a_changed_model(page, path, ids, name):
    changes, _ = EDITS[name]
    model = gpt()
    nodes = [list(node) for node in numbers(truth(model, ids), model)]
    for traced in page.evaluate(TRACE, [path, ids, changes, nodes]):
        if name == "straight" and traced["inner"] != traced["value"]:
            assert abs(traced["inner"] - traced["value"]) < CLOSE
        assert traced["sum"] == pytest.approx(traced["inner"], abs=CLOSE)


def test_three_presses_from_a_probability_to_a_token(walker):
    reader = walker().at("#walk=cat&step=12")
    traced = reader.page.get_by_role("region", name="Of what a number")
    assert not traced.is_visible()
    reader.page.locator(".walk-picture .walk-spot").first.click()
    best = int(shares(gpt(), TEXT).argmax())
    assert f"trace=logit.15.{best}" in reader.url
    heading = traced.locator(".walk-traced")
    assert "the sum of 8 terms." in heading.text_content()
    values = [
        abs(float(text.replace("−", "-")))
        for text in traced.locator("li span:last-child").all_text_contents()
        if text
    ]
    assert values == sorted(values, reverse=True)
    traced.get_by_role("button", name="attention of block").first.click()
    assert "adds to the logit" in heading.text_content()
    assert reader.page.evaluate("document.activeElement.className") == (
        "walk-traced"
    )
    token = traced.get_by_role("button", name="head").first
    named = re.search(r"head (\d) at “(.+?)”", token.text_content())
    token.click()
    state = reader.state()
    assert state["step"] == 7
    assert state["head"] == int(named[1]) - 1
    key = reader.page.evaluate("document.querySelector('live-walk').state.key")
    assert name_of(TEXT.encode()[key]) == named[2]
    assert not traced.is_visible()
    marked = reader.page.get_by_role("slider", name="Weight of")
    assert marked.is_visible()


def test_the_trace_by_keyboard(walker):
    reader = walker().at("#walk=cat&step=9")
    picture = reader.page.get_by_role("group", name="Picture of the step")
    keys = reader.page.keyboard
    picture.focus()
    keys.press("ArrowDown")  # into the picture
    keys.press("ArrowDown")
    keys.press("Enter")
    traced = reader.page.get_by_role("region", name="Of what a number")
    heading = traced.locator(".walk-traced")
    first = heading.text_content()
    assert first.startswith("Dimension 1 of what attention in block 2 adds")
    assert heading.evaluate("each => each === document.activeElement")
    reader.pass_time(500)
    spoken = reader.page.locator(".live-spoken").text_content()
    assert spoken.startswith(first)
    assert "head " in spoken
    reader.at("#walk=cat&step=10&trace=net.15.1.3")
    assert heading.text_content().startswith("Dimension 4 of what the network")
    traced.get_by_role("button", name="number").first.press("Enter")
    second = heading.text_content()
    assert "GELU(" in second
    traced.get_by_role("button", name="Back in the trace").press("Enter")
    assert heading.text_content().startswith("Dimension 4 of what the network")
    traced.get_by_role("button", name="Close").press("Enter")
    assert not traced.is_visible()
    assert picture.evaluate("each => each === document.activeElement")
    assert "trace" not in reader.url


# -- the zoom ----------------------------------------------------------------
def test_the_zoom_goes_in_and_out_by_keyboard(walker):
    reader = walker().at("#walk=cat&step=9")
    press = reader.page.keyboard.press
    way = reader.page.get_by_role("navigation", name="Zoom")
    code = reader.page.locator(".walk-lines pre")
    picture = reader.page.get_by_role("group", name="Picture of the level")
    leave = reader.page.get_by_role("button", name="Back to step 9")
    assert not leave.is_visible()
    way.get_by_role("button", name="Model").press("Enter")
    picture.focus()
    said = []
    for level in LEVELS:
        assert f"&step=9&zoom={level}" in reader.url
        assert code.text_content() == walk.code(level)
        assert way.locator("[aria-current=location]").count() == 1
        said.append(reader.sentence())
        marked = reader.page.locator(".walk-picture .walk-on")
        assert marked.count() == (3 if level == "dot" else 1)
        if level != "dot":
            press("Enter")
    assert len(set(said)) == 4
    assert not any("undefined" in text or "{" in text for text in said)
    reader.pass_time(600)
    assert reader.page.locator(".live-spoken").text_content() == said[-1]
    press("Enter")  # a product is the reader's way on, to its sum
    assert "&trace=q.15." in reader.url
    picture.focus()
    for level in ("head", "block", "model"):
        press("Escape")
        assert reader.url.endswith(f"&step=9&zoom={level}")
    press("ArrowDown")  # to the next block
    press("Enter")
    assert reader.url.endswith("&step=9&zoom=block&block=3")
    leave.press("Enter")
    assert reader.url.endswith("#walk=cat&step=9&block=3")
    heading = reader.page.locator(".walk-heading").text_content()
    assert heading.startswith("Step 9 of 12: ")
    focused = reader.page.evaluate("document.activeElement.className")
    assert focused == "walk-picture"
    press("Escape")  # nothing is left to go out of
    assert reader.state()["step"] == 9


def test_the_zoom_by_mouse(walker):
    reader = walker().at("#walk-model")
    spot = ".walk-picture .walk-enter"
    reader.page.locator(spot).nth(6 * 2 + 3).click()  # block 3, head 4
    assert "&zoom=block&block=3&head=4" in reader.url
    reader.page.locator(spot).nth(1).click()
    assert "&zoom=head&block=3&head=2" in reader.url
    reader.page.locator(f"{spot} .walk-cell").nth(9 * 16 + 4).click()
    assert "&zoom=dot&token=10&block=3&head=2&key=5" in reader.url
    reader.page.get_by_label("block 1").click()  # at the same level
    assert "&zoom=dot&block=1&head=2" in reader.url.replace("&token=10", "")
    reader.page.locator("[data-name=key]").select_option("3: e")
    assert reader.url.endswith("&key=3")
    reader.page.get_by_role("button", name="Next", exact=True).click()
    assert "zoom" not in reader.url


def test_the_zoom_shows_the_numbers_of_minimal(walker, ids):
    """At each level; and, as a control, those of a neighbor are others."""
    model, theirs = gpt(), truth(gpt(), ids)
    b, h, t, s = 1, 2, 9, 4
    block = theirs["blocks"][b]
    address = f"#walk=cat&zoom=%s&token={t + 1}&key={s + 1}"
    reader = walker().at(address % "dot")
    picture = reader.page.locator(".walk-picture")

    def numbers(words):
        found = re.findall(r"−?\d+\.\d+", words)
        return [float(each.replace("−", "-")) for each in found]

    q, keys = block["q"][h, t], block["k"][h]
    about = "rows => rows[2].map(bar => bar.about())"
    rows = "document.querySelector('live-walk').sheet.rows"
    said = reader.page.evaluate(f"({about})({rows})")
    shown = torch.tensor([numbers(each) for each in said])
    expected = torch.stack([q, keys[s], q * keys[s]], 1)
    assert far(shown.tolist(), expected) < 0.0051
    other = torch.stack([q, keys[s + 1], q * keys[s + 1]], 1)
    assert far(shown.tolist(), other) > 0.1
    score, weight = block["scores"][h, t], block["weights"][h, t]
    for i, agrees in ((s, True), (s + 1, False)):
        row = (q @ keys[i], score[i], 100 * weight[i])
        result = [number.item() for number in row]
        told = numbers(reader.sentence())
        assert (told == pytest.approx(result, abs=0.051)) == agrees
    reader.at(address % "head")
    reads = "cells => cells.map(cell => cell.about())"
    cells = reader.page.locator(".walk-enter .walk-cell")
    said = cells.evaluate_all(reads)
    shown = torch.tensor([numbers(each)[0] for each in said]).view(16, 16)
    assert far(shown.tolist(), block["scores"][h]) < 0.0051
    assert far(shown.tolist(), theirs["blocks"][b]["scores"][h - 1]) > 0.1
    printed = [each or "0" for each in cells.all_text_contents()]
    shown = torch.tensor([int(each) for each in printed]).view(16, 16) / 100
    assert far(shown.tolist(), block["weights"][h]) < 0.0101
    assert far(shown.tolist(), block["weights"][h - 1]) > 0.1
    reader.at(address % "block")
    lengths = picture.locator("text", has_text="length").all_text_contents()
    names = ("input", "attended", "written", "output")
    expected = [block[name][t].norm().item() for name in names]
    shown = [float(each.split()[-1]) for each in lengths]
    assert shown == pytest.approx(expected, abs=0.051)
    assert shown != pytest.approx(expected[::-1], abs=0.051)
    reader.at(address % "model")
    streams = [theirs["x"], *(each["output"] for each in theirs["blocks"])]
    with torch.no_grad():
        lens = [model.unembed(model.norm(x[t])).softmax(-1) for x in streams]
    shown = picture.locator("text", has_text="%").all_text_contents()
    assert [float(each[:-1]) for each in shown] == pytest.approx(
        [100 * each.max().item() for each in lens], abs=0.51
    )
    sharp = sum(
        (each["weights"][:, t].amax(-1) > 0.5).sum().item()
        for each in theirs["blocks"]
    )
    assert f"In {sharp} of the 15 heads" in reader.sentence()


def test_what_the_mask_hides_has_no_weight(walker, ids):
    reader = walker().at("#walk=cat&zoom=dot&token=4&key=10")
    block = truth(gpt(), ids)["blocks"][1]
    score = f"{block['scores'][2, 3, 9]:.2f}".replace("-", "−")
    assert f"the score {score}, but" in reader.sentence()
    assert reader.sentence().endswith("and the weight is 0.")
    reader.page.get_by_role("checkbox", name="÷ √Dh").uncheck()
    assert "as nothing divides it" in reader.sentence()


def test_it_plays_and_pauses(walker):
    reader = walker()
    reader.stop_clock()
    reader.page.get_by_role("button", name="Play").click()
    assert reader.state()["step"] == 2
    reader.page.clock.run_for(6100)
    assert reader.state()["step"] == 3
    reader.page.get_by_role("button", name="Pause").click()
    reader.page.clock.run_for(20_000)
    assert reader.state()["step"] == 3


def test_it_plays_faster_and_slower(walker):
    reader = walker()
    reader.page.emulate_media(reduced_motion="reduce")
    reader.stop_clock()
    speed = reader.page.get_by_role("combobox", name="Speed")
    assert speed.input_value() == "1"
    reader.page.get_by_role("button", name="Play").click()
    assert reader.state()["step"] == 2
    speed.focus()
    reader.page.keyboard.press("4")  # to the speed that begins with it
    assert speed.input_value() == "4"
    reader.page.clock.run_for(400)
    spoken = reader.page.locator(".live-spoken")
    assert spoken.text_content() == "A step every 1.5 seconds."
    reader.page.clock.run_for(3_500)
    assert reader.state()["step"] == 4
    assert spoken.text_content() == reader.sentence()
    # Who wants no motion sees the same numbers, and nothing slides.
    assert not reader.page.evaluate("document.getAnimations().length")
    speed.select_option("0.5")
    reader.page.clock.run_for(11_900)
    assert reader.state()["step"] == 4
    reader.page.clock.run_for(200)
    assert reader.state()["step"] == 5
    speed.select_option("4")
    reader.page.clock.run_for(20_000)  # it ends with the last step
    assert reader.state()["step"] == 12
    assert reader.page.get_by_role("button", name="Play").is_visible()


@pytest.mark.parametrize("step", [5, 10, 12])
def test_a_picture_is_saved_as_a_file_of_its_own(walker, step):
    reader = walker().at(f"#walk=cat&step={step}")
    with reader.page.expect_download() as found:
        reader.page.get_by_role("button", name="Save the picture").click()
    assert found.value.suggested_filename == f"walk-{step}.svg"
    saved = Path(found.value.path()).read_text("utf8")
    shown = reader.page.locator(".walk-picture svg")
    assert needs_a_stylesheet(shown.evaluate("svg => svg.outerHTML"))
    assert not needs_a_stylesheet(saved)
    assert "rgb(0,114,178)" in saved or step != 12  # a bar, as a weight
    root = ElementTree.fromstring(saved)
    title, *rest = root.itertext()
    assert title == reader.page.locator(".walk-heading").text_content()
    same = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "�", shown.text_content())
    assert "".join(rest) == same
    # In a program that knows nothing of the page: the same bars and cells.
    there = shown.evaluate(BOXES)
    tab = reader.page.context.new_page()
    tab.set_content(saved)
    assert tab.locator("svg").evaluate(BOXES) == there
    tab.close()


BOXES = """svg => [...svg.querySelectorAll("rect, path")].map(each => {
  const {width, height} = each.getBBox();
  return [width, height, getComputedStyle(each).strokeWidth];
})"""


def needs_a_stylesheet(svg):
    return bool(re.search(r"class=|var\(|color-mix|color\(", svg))


def test_the_steps_are_drawn_for_slides(browser, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "sphinx_ext")
    import walk_pictures

    paths = walk_pictures.draw(browser, tmp_path, steps=[5, 8])
    names = ["walk-5.svg", "walk-8.svg", "walk.pdf", "walk.gif"]
    assert [path.name for path in paths] == names
    five, eight = (path.read_text("utf8") for path in paths[:2])
    assert "every key</title>" in five
    # What each of the four heads is worth has been computed by then.
    assert eight.count(" points</text>") == 4
    with pypdfium2.PdfDocument(paths[2]) as pdf:
        texts = [page.get_textpage().get_text_range() for page in pdf]
    assert "Step 5 of 12" in texts[0]
    assert "Step 8 of 12" in texts[1]
    assert "self.output(" in texts[1]  # the line of minimal.py
    assert "Play" not in texts[0]
    with Image.open(paths[3]) as film:
        assert film.n_frames == 2


def image_of(tab):
    return tab.locator("img[alt=STILL]")


def test_without_javascript_and_on_paper_the_strip_stays(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((folder / "walk.html").as_uri())
    image = image_of(tab)
    assert image.is_visible()
    assert image.bounding_box()["height"] > 500
    context.close()
    context = browser.new_context()
    tab = context.new_page()
    tab.goto((folder / "walk.html").as_uri())
    tab.wait_for_selector("live-walk[data-state=ready]")
    assert not image_of(tab).is_visible()
    tab.emulate_media(media="print")
    assert image_of(tab).is_visible()
    assert not tab.get_by_role("slider", name="Step").is_visible()
    context.close()
    drawn = next(folder.glob("*.svg")).read_text("utf8")
    assert all(f"{step}. " in drawn for step in range(1, 13))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_for_everyone(walker, width, scheme):
    reader = walker(width, scheme).at()
    for step in (*range(1, 13), *MOMENTS):
        address = f"#walk-{step}" if isinstance(step, int) else step
        reader.page.evaluate("s => { location.hash = s; }", address)
        number = int(re.search(r"(?:walk-|step=)(\d+)", address)[1])
        reader.pass_time()  # it is told that the address has changed
        assert reader.state()["step"] == number
        assert reader.page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth"
        ), step
        assert reader.page.evaluate(OUTSIDE) == [], step
        assert axe(reader) == [], step


# What the steps show only when something is chosen.
MOMENTS = [
    "#walk=cat&step=3&put=5.115,9.99",
    "#walk=The+zoo%3A+123456789+abcdef&step=1",
    "#walk=The+zoo%3A+123456789+abcdef&step=6",
    "#walk=cat&step=11&beside=1",
    "#walk=cat&step=12&truth=104&push=2",
    "#walk=cat&step=12&trace=logit.15.104",
    "#walk=cat&step=10&trace=unit.15.1.3",
    *(f"#walk=cat&step=5&zoom={level}" for level in LEVELS),
]
# Words and cells that are not wholly within the picture.
OUTSIDE = """() => {
  const svg = document.querySelector(".walk-picture svg");
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text, .walk-cell rect")].filter((each) => {
    const {left, right, top, bottom} = each.getBoundingClientRect();
    return left < box.left - 1.5 || right > box.right + 1.5
      || top < box.top - 1.5 || bottom > box.bottom + 1.5;
  }).map((each) => each.textContent || "cell");
}"""
