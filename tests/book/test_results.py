"""Each result names a command that still parses and files that still match."""

import importlib
import itertools
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from coursekit_classroom.glue import result
from results import ladder, replacing, take_away
from results.record import ROOT, commit, record, sha256, summary
from results.story_gates import MUST_HOLD

sys.path.insert(0, str(ROOT / "sphinx_ext"))

import notebooks

FILES = sorted(Path(ROOT, "results").glob("*.json"))


def check(path):
    """Raise AssertionError if a result can't be made again as it says."""
    found = json.loads(path.read_text("utf8"))
    python, option, module, *arguments = shlex.split(found["command"])
    assert [python, option, module] == ["python", "-m", f"results.{path.stem}"]
    importlib.import_module(module).parser.parse_args(arguments)
    for name, digest in found["artifacts"].items():
        assert sha256(ROOT / name) == digest, name
    assert found["seeds"]
    assert found["metrics"]
    assert len(found["commit"].split("+")[0]) == 40
    assert found["wall_seconds"] > 0
    assert found["cpu_seconds"] > 0
    assert {"cores", "threads", "torch"} <= found["machine"].keys()


def test_there_are_results():
    names = {path.stem for path in FILES}
    assert {"first_run", "ladder", "running"} <= names


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_result_can_be_made_again(path):
    check(path)


@pytest.mark.parametrize(
    "change",
    [
        {"command": "python -m results.running --nonsense 3"},
        {"command": "python -m results.ladder"},
        {"artifacts": {"LICENSE": "0" * 64}},
        {"commit": "unknown"},
    ],
)
def test_a_spoiled_result_is_caught(tmp_path, change, capsys):
    spoiled = json.loads(Path(ROOT, "results/running.json").read_text("utf8"))
    path = tmp_path / "running.json"
    path.write_text(json.dumps(spoiled | change), "utf8")
    with pytest.raises((AssertionError, SystemExit)):
        check(path)


def test_summary_is_a_student_interval():
    # By hand: mean 3, deviation 1, t(2) = 4.303, so 4.303 / sqrt(3).
    found = summary([2.0, 3.0, 4.0])
    assert found["mean"] == 3.0
    assert found["interval"] == pytest.approx(2.4843, abs=1e-4)
    assert summary([5.0])["interval"] == 0.0
    ten = summary(list(range(10)))["interval"]  # 2.262 of nine degrees
    assert ten == pytest.approx(2.1657, abs=1e-3)


# -- what pages compare was run three times -----------------------------------
ONE_RUN = {  # results with fewer seeds that pages quote, and why
    "bench": "times, each in several rounds",
    "cache": "times, and counts that depend on no weights",
    "caught": "programs that are not trained",
    "checks": "programs that are not trained",
    "first_run": "what one reader's run reaches; compared with nothing",
    "grading": "a transcript",
    "half_hour": "one translator within a limit of time",
    "inference": "the shipped models, measured on one text",
    "live": "times",
    "published": "models of others",
    "running": "a model that pages load",
    "serving": "the shipped models, each measured on one text",
    "stories": "a model that pages load",
    "translation": "the shipped translators, measured on one text",
}


def test_what_pages_compare_has_three_seeds():
    quoted = {
        name
        for page in sorted(Path(ROOT, "book").rglob("*.md"))
        for name in re.findall(r'result\("(\w+)"\)', page.read_text("utf8"))
    }
    few = {
        path.stem
        for path in FILES
        if len(set(json.loads(path.read_text("utf8"))["seeds"])) < 3
    }
    assert quoted & few == ONE_RUN.keys()


# -- what the ladders and their counterparts must hold -----------------------
def three_seeds(rows):
    """Every loss of some rows has at least three values."""
    for row in rows:
        assert len(row["loss"]["values"]) >= 3, row


def replacing_holds(metrics):
    rungs = [config.to_dict() for _, _, config in replacing.rungs(67)]
    for before, after in itertools.pairwise(rungs):
        assert {k for k in before if before[k] != after[k]} in (
            {"positions"},
            {"n_layers"},
            {"n_heads"},
            {"residual", "norm", "final_norm"},
            {"d_ff"},
        )
    assert len(rungs) == len(metrics["rungs"])
    three_seeds(metrics["rungs"])


def ladder_holds(metrics):
    found = [
        (rung["name"], rung["label"], rung["chapter"])
        for rung in metrics["rungs"]
    ]
    assert found == ladder.RUNGS  # one chapter each: see test_lesson.py
    assert list(metrics["controls"]) == [c[0] for c in ladder.CONTROLS]
    assert metrics["tokens"]["vocabulary"] == ladder.BPE_VOCABULARY
    three_seeds([*metrics["rungs"], *metrics["controls"].values()])
    three_seeds([metrics["tokens"]])
    uniform = metrics["baselines"]["uniform"]["loss"]["mean"]
    assert all(rung["loss"]["mean"] < uniform for rung in metrics["rungs"])


def take_away_holds(metrics):
    found = [(row["name"], row["label"]) for row in metrics["models"]]
    assert found == [(name, label) for name, label, _ in take_away.MODELS]
    three_seeds(metrics["models"])
    whole, *_, mask = metrics["models"]
    # Without the mask the answers can be read, but where there are none.
    assert mask["loss"]["mean"] < whole["loss"]["mean"]
    assert mask["last_token_loss"]["mean"] > whole["last_token_loss"]["mean"]


def minimal_holds(metrics):
    three_seeds([metrics["minimal"], metrics["library"]])
    for difference in metrics["difference"]["values"]:
        assert abs(difference) < 0.02, "nats per character"


HOLDS = {
    "replacing": replacing_holds,
    "ladder": ladder_holds,
    "take_away": take_away_holds,
    "minimal": minimal_holds,
}


@pytest.mark.parametrize("name", [p.stem for p in FILES if p.stem in HOLDS])
def test_a_result_holds_what_its_code_says(name):
    HOLDS[name](result(name))


def test_a_result_of_other_rungs_is_caught():
    metrics = result("replacing")
    with pytest.raises(AssertionError):
        replacing_holds(metrics | {"rungs": metrics["rungs"][1:]})
    short = {"loss": {"values": [2.0, 2.1]}}
    with pytest.raises(AssertionError):
        three_seeds([*metrics["rungs"], short])
    losses = {"loss": {"values": [2.0, 2.1, 2.2]}}
    both = {"minimal": losses, "library": losses}
    minimal_holds(both | {"difference": {"values": [0.01, -0.01, 0.0]}})
    with pytest.raises(AssertionError, match="nats"):
        minimal_holds(both | {"difference": {"values": [0.0, -0.03, 0.0]}})


def test_a_run_that_fails_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("results.record.HERE", tmp_path)
    monkeypatch.setattr("sys.argv", ["x", "--steps", "7"])

    def fail():
        with record("toy", [11]) as metrics:
            metrics["loss"] = 1.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
    with record("toy", [11]) as metrics:
        metrics["loss"] = 1.0
    found = json.loads((tmp_path / "toy.json").read_text("utf8"))
    assert found["command"] == "python -m results.toy --steps 7"
    assert found["commit"] == commit()
    assert found["metrics"] == {"loss": 1.0}


def test_a_missing_result_says_how_to_make_it():
    with pytest.raises(ValueError, match="make results NAME=nonsense"):
        result("nonsense")


def test_the_readme_quotes_the_results():
    readme = Path(ROOT, "README.md").read_text("utf8")
    running, first = result("running"), result("first_run")
    last = first["training"][-1]
    for number in (
        f"{running['parameters']:,}",
        f"{running['nats_per_character']:.2f}",
        f"{first['evaluation']['loss']:.3f}",
        f"{last['step']:,} steps",
        f"{round(last['tokens_per_second'], -2):,.0f} tokens/s",
    ):
        assert number in readme, number
    assert first["sample"].splitlines()[1] in readme


def test_the_readme_quotes_the_shipped_models():
    readme = Path(ROOT, "README.md").read_text("utf8")
    rows = re.findall(
        r"^\| `([\w-]+)` \|.*\| ([\d.]+) M \| (.*) \|$", readme, re.M
    )
    quoted = {name: (size, measured) for name, size, measured in rows}
    for entry in result("translation")["entries"]:
        size, measured = quoted.pop(f"translator-{entry['pair']}")
        assert size == f"{entry['parameters'] / 1e6:.2f}"
        assert measured == f"BLEU {entry['bleu']:.1f}"
    size, measured = quoted.pop("stories")
    metrics = result("stories")
    [gates] = [
        run["gates"]
        for run in metrics["runs"]
        if run["seed"] == metrics["shipped"]
    ]
    assert size == f"{metrics['parameters'] / 1e6:.2f}"
    intact = (f"{gates[name]['intact']:.2f}" for name in MUST_HOLD)
    assert measured == f"gates {', '.join(intact)}"
    size, measured = quoted.pop("stories-student")
    metrics = result("distill")
    assert size == f"{metrics['parameters'] / 1e6:.2f}"
    assert measured == f"{metrics['shipped']:.3f} nats per token"
    size, measured = quoted.pop("ladder")
    rung = result("ladder")["rungs"][-1]
    assert size == f"{rung['parameters'] / 1e6:.2f}"
    assert measured == f"{rung['loss']['values'][0]:.3f} nats per character"
    for name, (size, measured) in quoted.items():
        metrics = result(name)
        assert size == f"{metrics['parameters'] / 1e6:.2f}"
        nats = f"{metrics['nats_per_character']:.3f}"
        assert measured == f"{nats} nats per character"
    assert set(quoted) == {"captions", "shakespeare"}


# -- what the pages cost -----------------------------------------------------
CORE = [f"book/{number:02}_" for number in range(1, 11)]


def too_dear(costs, names):
    """Pages that were not measured, or that take too long."""
    wrong = [f"not measured: {page}" for page in names if page not in costs]
    wrong += [
        f"{page} takes {cost['seconds']} s, more than 45"
        for page, cost in costs.items()
        if cost["seconds"] > 45
    ]
    core = sum(
        cost["seconds"]
        for page, cost in costs.items()
        if page.startswith(tuple(CORE))
    )
    if core > 240:
        wrong.append(f"the core chapters take {core} s, more than 240")
    return wrong


def test_pages_are_measured_and_quick():
    """Remedy: make a chapter cheaper, or `make results NAME=chapters`."""
    names = [page for page, _ in notebooks.chapters(ROOT)]
    assert too_dear(result("chapters")["pages"], names) == []


def test_a_dear_page_is_found():
    costs = {f"book/{n:02}_x": {"seconds": 44} for n in range(1, 7)}
    costs["book/09_slow"] = {"seconds": 46}
    wrong = too_dear(costs, ["book/00_new"])
    assert [line.split()[0] for line in wrong] == [
        "not",
        "book/09_slow",
        "the",
    ]
