"""Speed of the live figures in Chromium, on a page opened as a file.

Ready: from the page's first byte to the figure that has replaced its picture,
with the writer of captions. Key: from a key pressed to the map drawn again, at
64 tokens. Step: one more token with a cache of 64. Hero: the first page's
figure ready, and a swap: from a press to the bars and arcs of another word.
Walk: its figure ready; a frame: the script of one step drawn, controls and
answer included, the states known; a level of the zoom: the same of one level,
from the model to one dot product; another text: its states computed, and the
same drawn; a drag: one weight of block 2 set by the slider, all states behind
it computed, and the same drawn.
Train step: one training step of the model that learns in the page. A run of
it, without pauses, is written down too: its curve, what it generates after 0,
10 and 60 seconds of training, and how many of those words the text has, too.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import coursekit
from coursekit_classroom import live
from coursekit_classroom.live import train
from results.record import options, record

GOALS = {
    "ready": 1000.0,
    "key": 50.0,
    "step": 5.0,
    "hero": 1000.0,
    "swap": 100.0,
    "walk": 1000.0,
    "walk frame": 6.0,
    "walk zoom": 6.0,
    "walk swap": 100.0,
    "train step": 60.0,
}
TEXT = " ".join(["two old sailors and a tired dog wait at the harbor"] * 7)
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>
<script defer src="live.js"></script>
<{figure} model="{model}" {more}></{figure}></html>
"""
READY = """new Promise((resolve) => {
  const look = () => document.querySelector(
    "live-attention, live-hero, live-walk").dataset.state === "ready"
    ? resolve(performance.now()) : setTimeout(look, 1);
  look();
})"""
KEYS = """(times) => {
  const figure = document.querySelector("live-attention");
  const box = figure.querySelector("input");
  const found = [];
  for (let i = 0; i < times; i++) {
    box.value = TEXT.slice(i % 3);
    const start = performance.now();
    box.dispatchEvent(new Event("input"));
    found.push(performance.now() - start);
  }
  if (figure.names.length !== 64) throw Error(`${figure.names.length} tokens`);
  return found;
}"""
STEPS = """(times) => {
  const {library} = document.querySelector("live-attention");
  const stepper = new coursekitLive.CachedStepper(library.build());
  stepper.prefill(library.tokenizer.encode(TEXT).slice(0, 64));
  const found = [];
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    stepper.step([300 + i]);
    found.push(performance.now() - start);
  }
  return found;
}"""


SWAPS = """(times) => {
  const figure = document.querySelector("live-hero");
  const found = [];
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    figure.querySelector(".hero-swap").click();
    figure.getBoundingClientRect(); // the layout, too
    found.push(performance.now() - start);
  }
  return found;
}"""


# Each draws the step, the controls and the answer; what is not timed is the
# layout, which the browser does on its own.
FRAMES = """(times) => {
  const walk = document.querySelector("live-walk"), found = [];
  for (let i = 0; i < 12 * times; i++) {
    const start = performance.now();
    walk.change({step: 1 + i % 12});
    found.push(performance.now() - start);
  }
  return found;
}"""
LEVELS = """(times) => {
  const walk = document.querySelector("live-walk"), found = [];
  const levels = ["model", "block", "head", "dot"];
  for (let i = 0; i < 4 * times; i++) {
    const start = performance.now();
    walk.change({zoom: levels[i % 4]});
    found.push(performance.now() - start);
  }
  walk.change(walk.start);
  return found;
}"""
OTHERS = """(times) => {
  const walk = document.querySelector("live-walk"), found = [];
  walk.change({step: 12});
  for (let i = 0; i < times; i++) {
    walk.cache.clear();
    const start = performance.now();
    walk.change(walk.texts.swap(walk.words[1 - i % 2]));
    walk.getBoundingClientRect(); // the layout, too
    found.push(performance.now() - start);
  }
  walk.change(walk.start);
  return found;
}"""
DRAGS = """(times) => {
  const walk = document.querySelector("live-walk"), found = [];
  walk.change({step: 7, block: 1});
  const {block, head, key} = walk.state;
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    walk.change({weight: {block, head, key, share: i / times}}, true);
    found.push(performance.now() - start);
  }
  walk.change(walk.start);
  return found;
}"""


TRAIN_STEPS = """([text, times]) => {
  const trainer = new coursekitLive.Trainer(text), found = [];
  for (let i = 0; i < 20; i++) trainer.step(); // the first are compiled
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    trainer.step();
    found.push(performance.now() - start);
  }
  return found;
}"""
# Samples when training has taken so many seconds, and in the end.
RUN = """([text, when, characters]) => {
  const trainer = new coursekitLive.Trainer(text), losses = [], samples = [];
  let seconds = 0;
  while (true) {
    if (seconds >= when[samples.length] || trainer.done)
      samples.push({seconds, step: losses.length,
        text: trainer.sample(characters)});
    if (trainer.done) break;
    const start = performance.now();
    losses.push(trainer.step());
    seconds += (performance.now() - start) / 1000;
  }
  return {losses, samples, prompt: trainer.prompt, ...trainer.run,
    vocab_size: trainer.config.vocab_size,
    parameters: trainer.model.all.w.length};
}"""
WHEN, LENGTH, BIN = (0, 10, 60), 4000, 20


parser = options(__doc__, times=20)


def program() -> str | None:
    """The system's Chromium: ``CHROMIUM``, or the first that is installed.

    The headless build takes a sixth less time than the full one.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    found = (shutil.which(name) for name in (*names, "google-chrome"))
    return os.environ.get("CHROMIUM") or next(filter(None, found), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program(),
            args=["--headless", "--no-sandbox", "--disable-gpu"],
        )
        yield browser
        browser.close()


def load(
    browser: Any, times: int, name: str, figure: str, more: str
) -> tuple[list[float], Any]:
    """Milliseconds of ``times`` loads of a figure, and the last page."""
    model, tokenizer = coursekit.load(name)
    with TemporaryDirectory() as place:
        folder = Path(place)
        script = live.export(model, tokenizer, folder, name)
        (folder / "live.js").write_text(live.bundle(), "utf8")
        path = folder / "page.html"
        text = PAGE.format(model=script.name, figure=figure, more=more)
        path.write_text(text, "utf8")
        ready: list[float] = []
        for _ in range(times):
            page = browser.new_page()
            page.goto(path.as_uri(), wait_until="commit")
            ready.append(page.evaluate(READY))
            if len(ready) < times:
                page.close()
    return ready, page


def examples() -> Any:
    """The prompts and words of the hero and the walk."""
    path = coursekit.find_model("stories") / "examples.json"
    return json.loads(path.read_bytes())


def measure(browser: Any, times: int) -> dict[str, list[float]]:
    """Milliseconds of ``times`` loads, keys, steps and swaps."""
    more = 'text="A dog sleeps"'
    ready, page = load(browser, times, "captions", "live-attention", more)
    page.evaluate(f"globalThis.TEXT = {TEXT!r}")
    page.evaluate(KEYS, 5)  # the first are compiled
    keys, steps = page.evaluate(KEYS, times), page.evaluate(STEPS, times)
    page.close()
    chips = examples()["chips"]
    prompts = escape(json.dumps(chips))
    more = f'text="{chips[0]["prompt"]}" prompts="{prompts}"'
    hero, page = load(browser, times, "stories", "live-hero", more)
    page.evaluate(SWAPS, 5)
    swaps = page.evaluate(SWAPS, times)
    page.close()
    found = {"ready": ready, "key": keys, "step": steps}
    found |= {"hero": hero, "swap": swaps}
    with trainer(browser) as page:
        given = [train.texts()["plays"], times]
        found["train step"] = page.evaluate(TRAIN_STEPS, given)
    return found | measure_walk(browser, times)


def load_walk(browser: Any, times: int) -> tuple[list[float], Any]:
    """Milliseconds of ``times`` loads of the walk, and the last page."""
    given = examples()
    vocabulary = escape(json.dumps(given["words"]))
    more = f'text="{given["walk"]["prompt"]}" vocabulary="{vocabulary}" '
    more += f'swap="{" ".join(given["walk"]["words"])}"'
    return load(browser, times, "stories", "live-walk", more)


def measure_walk(browser: Any, times: int) -> dict[str, list[float]]:
    """Milliseconds of the walk's loads, steps, levels, texts and drags."""
    ready, page = load_walk(browser, times)
    found = {"walk": ready}
    for name, script in (
        ("walk frame", FRAMES),
        ("walk zoom", LEVELS),
        ("walk swap", OTHERS),
        ("walk drag", DRAGS),
    ):
        page.evaluate(script, 2)  # the first are compiled
        found[name] = page.evaluate(script, times)
    page.close()
    return found


@contextmanager
def trainer(browser: Any) -> Iterator[Any]:
    """A page with the script of the worker that trains."""
    with TemporaryDirectory() as place:
        script = Path(place) / "worker.js"
        script.write_text(live.bundle(train.sources()), "utf8")
        page = browser.new_page()
        page.set_default_timeout(900_000)
        path = Path(place) / "page.html"
        path.write_text('<!doctype html><script src="worker.js"></script>')
        page.goto(path.as_uri())
        yield page
        page.close()


def known_words(sample: str, text: str) -> float:
    """The fraction of a sample's words that a text has, too.

    Words have two letters or more; the first and the last may be cut.
    """
    word = re.compile(r"[^\W\d_]{2,}")
    known, found = set(word.findall(text)), word.findall(sample)[1:-1]
    return sum(each in known for each in found) / max(1, len(found))


def record_run(browser: Any) -> dict[str, Any]:
    """A whole run on the plays: its curve, and samples on the way."""
    text = train.texts()["plays"]
    with trainer(browser) as page:
        run = page.evaluate(RUN, [text, list(WHEN), LENGTH])
    losses = run.pop("losses")
    run["bin"] = BIN
    run["curve"] = [
        round(sum(part) / len(part), 3)
        for part in (losses[i : i + BIN] for i in range(0, len(losses), BIN))
    ]
    for sample in run["samples"]:
        sample["words"] = round(known_words(sample["text"], text), 3)
        sample["seconds"] = round(sample["seconds"], 1)
        sample["text"] = sample["text"][:300]
    run["in_all"] = run["samples"].pop()
    return dict(run)


def main() -> None:
    """Measure and write down."""
    args = parser.parse_args()
    with record("live", [0]) as metrics, chromium() as browser:
        found = measure(browser, args.times)
        metrics["unit"] = "milliseconds"
        metrics["browser"] = browser.version
        metrics["goals"] = GOALS
        # How many processes wanted a core: above their number, all is slower.
        metrics["load"] = round(os.getloadavg()[0], 1)
        for name, values in found.items():
            metrics[name] = {
                "median": round(median(values), 2),
                "least": round(min(values), 2),
                "most": round(max(values), 2),
            }
            print(f"{name}: {metrics[name]}")
        metrics["train"] = record_run(browser)


if __name__ == "__main__":
    main()
