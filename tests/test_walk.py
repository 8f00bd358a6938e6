"""The walk: its states are minimal.py's, and its page does what it says.

The oracle is `minimal.py`: hooks keep what its modules compute, and where the
walk changes the model, one line of the file is changed.
"""

import functools
import json
import math
import re

import pytest
import test_live
import test_pages
import torch
from test_pages import axe

import coursekit
from coursekit import minimal
from coursekit.classroom import lesson, live
from coursekit.classroom.live import strip, walk
from coursekit.models import find_model
from coursekit.tokenizer import BPETokenizer
from results.minimal import to_library

browser = test_pages.browser
page = test_live.page
pytestmark = pytest.mark.xdist_group("walk")

CLOSE = 1e-5
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


# -- the lines ---------------------------------------------------------------
def test_the_lines_are_those_of_minimal():
    whole = re.sub(r" *#.*", "", lesson.text(lesson.LAST_CHAPTER))
    lines = {line.strip() for line in whole.splitlines()}
    assert set(walk.LINES) == set(range(1, 13))
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
        f'text="{TEXT}" swap="{SWAP}" block="2" head="3">'
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
        visit.page.set_default_timeout(20_000)
        visits.append(visit)
        return visit

    yield start
    for visit in visits:
        assert visit.wrong == []
        visit.close()


def test_twelve_steps_by_keyboard(walker):
    reader = walker().at()
    scrubber = reader.page.get_by_role("slider", name="Step")
    scrubber.focus()
    said = [reader.sentence()]
    for step in range(2, 13):
        reader.page.keyboard.press("ArrowRight")
        assert f"step={step}" in reader.page.url
        text = scrubber.get_attribute("aria-valuetext")
        assert text.startswith(f"Step {step} of 12: ")
        code = reader.page.locator(".walk-lines pre").text_content()
        assert code == walk.code(step)
        said.append(reader.sentence())
    assert len(set(said)) == 12
    assert not any("undefined" in text or "{" in text for text in said)
    reader.page.keyboard.press("Home")
    assert reader.sentence() == said[0]
    reader.page.wait_for_timeout(700)
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
    reader.page.wait_for_timeout(500)
    assert reader.page.locator(".live-spoken").text_content() == expected
    for _ in range(9):
        reader.page.keyboard.press("ArrowDown")
    assert readout.text_content().startswith("x, dimension 2: ")


ADDRESSES = [
    "#walk=cat&step=5&token=3&block=3&head=5",
    "#walk=dog&step=8&mute=1.3,2.5",
    "#walk=cat&step=6&token=9&root=off&mask=off",
    "#walk=cat&step=9&cut=2,3&straight=1",
    "#walk=cat&step=7&weight=2.3.4.70",
    "#walk=cat&step=12&temperature=1.5",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_holds_the_state(walker, address):
    reader = walker().at(address)
    state = reader.state()
    reader.page.get_by_role("slider", name="Step").press("ArrowLeft")
    reader.page.get_by_role("slider", name="Step").press("ArrowRight")
    assert reader.page.url.endswith(address)
    assert reader.state() == state
    assert state["step"] == int(re.search(r"step=(\d+)", address)[1])
    reader.page.get_by_role("button", name="Start again").click()
    assert reader.page.url.endswith("#walk=cat&step=1")
    reader.page.evaluate("a => { location.hash = a; }", address)
    reader.page.wait_for_function(
        "a => JSON.stringify(document.querySelector('live-walk').state"
        ".step) === a",
        arg=str(state["step"]),
    )
    assert reader.state() == state


@pytest.mark.parametrize(
    "address",
    ["#walk-7", "#walk=bird&step=99&token=-3&block=x&mute=9.9,&weight=1"],
)
def test_an_odd_address_is_no_error(walker, address):
    reader = walker().at(address)
    assert reader.state()["step"] == (7 if address == "#walk-7" else 12)
    reader.at("#fragment")
    assert reader.state()["step"] == 1


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
    assert "mute=2.3" in reader.page.url
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


def test_a_token_is_drawn(walker):
    reader = walker().at("#walk=cat&step=12&temperature=0.1")
    draw = reader.page.get_by_role("button", name="Draw a token")
    draw.press("Enter")
    assert " was drawn. " in reader.sentence()
    name = tokenizer().decode([int(shares(gpt(), TEXT).argmax())])
    assert name in reader.sentence()
    focused = reader.page.evaluate("document.activeElement.dataset.name")
    assert focused == "draw"


def test_it_plays_and_pauses(walker):
    reader = walker()
    reader.page.clock.install()
    reader.at()
    reader.page.get_by_role("button", name="Play").click()
    assert reader.state()["step"] == 2
    reader.page.clock.run_for(6100)
    assert reader.state()["step"] == 3
    reader.page.get_by_role("button", name="Pause").click()
    reader.page.clock.run_for(20_000)
    assert reader.state()["step"] == 3


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


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_for_everyone(walker, width, scheme):
    reader = walker(width, scheme).at()
    for step in range(1, 13):
        reader.page.evaluate("s => { location.hash = s; }", f"#walk-{step}")
        reader.page.wait_for_function(
            "s => document.querySelector('live-walk').state.step === s",
            arg=step,
        )
        assert reader.page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth"
        ), step
        assert reader.page.evaluate(OUTSIDE) == [], step
        if scheme == "light":
            assert axe(reader) == [], step


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
