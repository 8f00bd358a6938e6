"""A race on a toy text; its numbers and tables by hand."""

import json
import re
from pathlib import Path

import pytest
import torch

from coursekit.decoder import GPT
from results import speedrun

TEXT = "".join(f"the {a} saw the {b}. " for a in "abcde" for b in "fghij") * 4
ALONE, FAST, RECIPE = speedrun.ALONE, speedrun.FAST, speedrun.RECIPE
WITHIN, Entry, Run = speedrun.WITHIN, speedrun.Entry, speedrun.Run
NOTHING = speedrun.Corpus(5, torch.zeros(0, dtype=torch.long), [])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return speedrun.read_corpus(path)


@pytest.fixture
def small(monkeypatch):
    """All entries with a model that takes no time."""
    tiny = {"d_model": 8, "n_heads": 2, "n_layers": 1}
    monkeypatch.setattr(speedrun, "MODEL", speedrun.MODEL | tiny)


def scripted(monkeypatch, *runs):
    """`learn` gives these, and notes how it was called."""
    left, calls = list(runs), []

    def learn(entry, corpus, steps, seed):
        calls.append((entry, steps, seed))
        return left.pop(0)

    monkeypatch.setattr(speedrun, "learn", learn)
    return calls


# -- the entries -------------------------------------------------------------
def test_the_recipe_is_nanogpts_for_a_cpu():
    """Its readme: 4 layers of 128, 64 tokens, 12 rows, 2000 steps."""
    model, training = RECIPE.configs(65, speedrun.STEPS, 7)
    shape = (model.n_layers, model.n_heads, model.d_model, model.max_len)
    assert shape == (4, 4, 128, 64)
    assert (training.batch_size, training.steps) == (12, 2000)
    assert (training.learning_rate, training.min_lr_ratio) == (1e-3, 0.1)
    assert (training.beta2, training.warmup_steps) == (0.99, 100)
    assert (training.optimizer, training.seed) == ("adamw", 7)
    assert model.dropout == 0.0


def test_each_trial_changes_what_its_name_says():
    """One choice each (SwiGLU's two fields are one)."""
    for start, entries in ((RECIPE, ALONE), (FAST, WITHIN)):
        base_model, base = start.configs(65, 300, 0)
        for name, entry in entries.items():
            model, training = entry.configs(65, 300, 0)
            changed = {
                k
                for one, other in ((base_model, model), (base, training))
                for k, v in one.to_dict().items()
                if other.to_dict()[k] != v
            }
            if name == "float32" and base.precision == "float32":
                continue  # this machine does not multiply in bfloat16
            limit = 2 if name in ("SwiGLU", "AdamW, rate 0.003") else 1
            if name.startswith("batch"):
                assert changed == {"batch_size", "steps", "warmup_steps"}
                assert training.steps == 150  # as much text
                assert training.warmup_steps * 2 == base.warmup_steps
            else:
                assert len(changed) == limit, name


def test_no_entry_has_more_parameters():
    def count(entry):
        with torch.device("meta"):
            model = GPT(entry.configs(65, 1, 0)[0])
        return sum(p.numel() for p in model.parameters())

    for entry in (FAST, *ALONE.values(), *WITHIN.values()):
        assert count(entry) <= count(RECIPE)
    assert count(Entry({"d_ff": 513})) > count(RECIPE)


# -- one training ------------------------------------------------------------
def test_a_run_is_seeded_and_counts_its_steps(small, corpus):
    one, same, other = (
        speedrun.learn(FAST, corpus, 3, seed) for seed in (5, 5, 6)
    )
    assert one.loss == same.loss != other.loss
    assert one.steps == 3
    assert one.seconds > 0
    longer = speedrun.learn(FAST, corpus, 60, 5)
    assert longer.loss < one.loss


def test_seconds_are_those_of_training(small, corpus, monkeypatch):
    """A clock that an evaluation moves, but not a training."""
    now = [0.0]
    evaluate = speedrun.evaluate

    def slow(*args):
        now[0] += 100
        return evaluate(*args)

    monkeypatch.setattr(speedrun, "evaluate", slow)
    monkeypatch.setattr(speedrun, "train", lambda *a, **k: now.append(7))
    monkeypatch.setattr(
        speedrun.time, "perf_counter", lambda: now[0] + sum(now[1:])
    )
    assert speedrun.learn(RECIPE, corpus, 2, 0).seconds == 7


# -- the race ----------------------------------------------------------------
def planted(short_loss):
    """Two rounds: the recipe takes 60 s, the fast one 20 ms a step."""
    return [
        Run(2000, 60.0, 1.90, 99),
        Run(400, 8.0, 1.85, 88),
        Run(2850, 57.0, 1.60, 88),
        Run(2000, 64.0, 1.92, 99),
        Run(400, 8.0, short_loss, 88),
        Run(3040, 60.8, 1.62, 88),
    ]


def test_the_race_by_hand(monkeypatch):
    calls = scripted(monkeypatch, *planted(1.87))
    said = []
    found = speedrun.race(NOTHING, [0, 1], say=said.append)
    assert [steps for _, steps, _ in calls] == [
        *(2000, speedrun.SHORT_STEPS, 2850),  # 0.95 · 60 s / 20 ms
        *(2000, speedrun.SHORT_STEPS, 3040),  # 0.95 · 64 s / 20 ms
    ]
    assert [entry for entry, _, _ in calls] == [RECIPE, FAST, FAST] * 2
    assert len(said) == 6
    assert found["goal"] == pytest.approx(1.91)  # the recipe's own
    assert found["share"]["values"] == [0.133, 0.125]
    assert found["long_share"]["values"] == [0.95, 0.95]
    assert found["reached"]
    assert (
        speedrun.verdict(found)
        == "1.910 reached after 8.0 s, 0.13 of the recipe's time"
    )


def test_one_seed_that_misses_is_said(monkeypatch):
    """Though the mean is below the goal."""
    scripted(monkeypatch, *planted(1.92))
    found = speedrun.race(NOTHING, [0, 1], say=lambda _: None)
    assert found["entries"]["short"]["loss"]["mean"] < found["goal"]
    assert not found["reached"]
    assert (
        speedrun.verdict(found)
        == "1.910 not reached: the short run's worst seed has 1.92"
    )


def test_the_table_by_hand(monkeypatch):
    """Seconds 60 and 64: 62 ± 12.706 · 2.828 / 1.414 = 25.4."""
    scripted(monkeypatch, *planted(1.87))
    found = speedrun.race(NOTHING, [0, 1], say=lambda _: None)
    assert speedrun.race_table(found).splitlines() == [
        "| run    | steps |     seconds | validation loss | parameters |",
        "| ------ | ----: | ----------: | --------------: | ---------: |",
        "| recipe | 2,000 | 62.0 ± 25.4 |   1.910 ± 0.127 |         99 |",
        "| short  |   400 |   8.0 ± 0.0 |   1.860 ± 0.127 |         88 |",
        "| long   | 2,945 | 58.9 ± 24.1 |   1.610 ± 0.127 |         88 |",
    ]


def test_trials_by_hand(monkeypatch):
    a, b = Entry(), Entry({"norm": "rmsnorm"})
    runs = [Run(3, 2.0, 2.0, 5), Run(3, 2.0, 2.1, 5), Run(3, 3.0, 1.8, 5)]
    runs += [Run(3, 4.0, 2.2, 5), Run(3, 4.0, 2.3, 5), Run(3, 6.0, 2.0, 5)]
    calls = scripted(monkeypatch, *runs)
    found = speedrun.trials(
        a, {"worse": b, "better": b}, NOTHING, [0, 1], 3, lambda _: None
    )
    assert [seed for _, _, seed in calls] == [0, 0, 0, 1, 1, 1]
    worse, better = found["changes"]
    assert worse["change"]["values"] == [0.1, 0.1]
    assert better["change"]["values"] == [-0.2, -0.2]
    assert better["time"]["mean"] == 1.5
    names = re.findall(
        r"^\| (\w+) .* ([\d.]+) \|$", speedrun.trials_table(found, "a"), re.M
    )
    assert names == [("a", "1.00"), ("better", "1.50"), ("worse", "1.00")]
    worse["time"]["values"] = [1.1, 1.2, 9.9]  # once, the machine was busy
    row = speedrun.trials_table(found, "a").splitlines()[-1]
    assert row.endswith("| 1.20 |")


# -- the page ----------------------------------------------------------------
def test_what_a_page_can_quote():
    change = {"change": {"mean": -0.25, "interval": 0.011}}
    entry = {
        "loss": {"mean": 1.5, "interval": 0.02},
        "seconds": {"mean": 8.04},
    }
    found = {
        "entries": dict.fromkeys(("recipe", "short", "long"), entry),
        "goal": 1.8967,
        "share": {"mean": 0.133},
        "alone": {"changes": [{"name": name} | change for name in ALONE]},
        "within": {"changes": [{"name": name} | change for name in WITHIN]},
    }
    shown = speedrun.figures(found)
    assert {f"alone {name}" for name in ALONE} < shown.keys()
    assert {f"within {name}" for name in WITHIN} < shown.keys()
    assert shown["alone RoPE"] == "-0.250 ± 0.011"
    assert (shown["seconds"], shown["share"]) == ("8.0", "0.13")
    assert (shown["goal"], shown["long"]) == ("1.897", "1.500")


def test_the_settings_stand_side_by_side():
    rows = speedrun.settings_table().splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert ["`optimizer`", "adamw", "muon"] in cells
    assert ["`batch_size`", "12", ""] in cells
    assert len(rows) == 2 + len(speedrun.MODEL | speedrun.TRAINING)


def test_the_page_shows_what_the_result_says():
    path = Path(__file__).parents[2] / "results/speedrun.json"
    found = json.loads(path.read_text("utf8"))["metrics"]
    assert found["page"] == speedrun.for_the_page(found)
