"""The capstones: what you have built, on a text or a task of your own.

After chapter 12 the finished file trains on a text of its learner's, changes
one thing whose effect was predicted, and says in a report what came of it.
It is no option of ``coursekit step``, since it takes two calls: a prediction,
whose hash can be shown to somebody before the run, and the run.
After chapter 14 a file with an encoder and a decoder translates.  What each
stage asks for stands in :mod:`.check_capstone` and :mod:`.check_translator`.
"""

import argparse
import hashlib
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coursekit.data import load_text
from coursekit_classroom.glue import result
from coursekit_classroom.shape import NUMBER, read_shaped
from coursekit_classroom.yourfile import (
    LADDER_STEPS,
    add_file,
    chapter_of,
    check_steps,
    existing,
    run_child,
    translator_file,
)

SHORTEST = 10_000  # characters of a text


@dataclass(frozen=True)
class Prediction:
    """The expected effect of one change, recorded before the run."""

    old: str
    """Lines of the file, which occur in it once."""
    new: str
    """Their replacement."""
    expected: float
    """Held-out loss with the change minus without, in nats per character."""
    file: str
    """SHA-256 of the file as it was."""
    made: str
    """When, in UTC."""

    @property
    def digest(self) -> str:
        """SHA-256 of the prediction: who has it can tell later changes."""
        text = json.dumps(vars(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def predicted(where: Path) -> Prediction:
    """Read a prediction.

    Raises:
        ValueError: if the file is not as it was written.
    """
    shape = {"old": str, "new": str, "expected": NUMBER} | {
        "file": str,
        "made": str,
    }
    try:
        fields = read_shaped(where.read_bytes(), shape, "prediction")
    except ValueError as error:
        raise ValueError(
            f"a prediction stays as it was made: got {where}, with {error}. "
            "Delete the file, and predict again."
        ) from None
    return Prediction(**{name: fields[name] for name in shape})


def sibling(file: Path, kind: str) -> Path:
    """The path of a file's prediction or report."""
    return file.with_name(f"{file.stem}.{kind}")


def predict(
    file: str | Path | None, old: str, new: str, expected: float
) -> str:
    """Say before the run what one change does to the held-out loss.

    Args:
        file: the learner's file.
        old: part of it, which occurs exactly once.
        new: its replacement.
        expected: the loss with the change minus that without it, in nats
            per character; negative if the change is for the better.

    Returns:
        The prediction's SHA-256, to be shown to somebody before the run.

    Raises:
        ValueError: if the file has been run already, or lacks the old part.
    """
    path = existing(file)
    source = path.read_text("utf-8")
    if (report := sibling(path, "report.md")).exists():
        raise ValueError(
            f"a prediction is made before the run: got {report}, which has "
            "the result. Delete it to begin again."
        )
    if source.count(old) != 1 or old == new:
        like = [
            f"line {number}, `{line.strip()}`"
            for number, line in enumerate(source.splitlines(), 1)
            if old.lower() in line.lower()
        ]
        raise ValueError(
            "one change replaces what the file holds exactly once by "
            f"something else: got {old!r}, {source.count(old)} times, to "
            f"become {new!r}. Copy OLD from one line of your file, as much "
            f"as tells it from others: {'; '.join(like) or 'none has it'}."
        )
    if not math.isfinite(expected):
        raise ValueError(
            f"a prediction is a difference in nats: got {expected}. Give a "
            "number, negative if the loss falls."
        )
    made = datetime.now(UTC).isoformat(timespec="seconds")
    digest = hashlib.sha256(source.encode()).hexdigest()
    prediction = Prediction(old, new, expected, digest, made)
    where = sibling(path, "prediction.json")
    where.write_text(json.dumps(vars(prediction), indent=1), "utf-8")
    print(f"{where}: {expected:+.3f} nats per character\n{prediction.digest}")
    if abs(expected) <= spread():
        print(
            "The book's file, trained with three seeds, ends within "
            f"{spread():.3f} nats:\nso small a change cannot be told from "
            "chance. A bolder one shows more."
        )
    return prediction.digest


def spread() -> float:
    """The range of losses of the book's file over seeds."""
    losses = result("minimal")["minimal"]["loss"]["values"]
    return float(max(losses) - min(losses))


def capstone(
    file: str | Path | None = None,
    text: str | Path | None = None,
    steps: int | None = None,
) -> bool:
    """Check the finished file on a text, and write the report.

    Args:
        file: the learner's, with every part of chapter 12 and with `run`;
            or, with `chapter = 14`, a translator.
        text: a file with the learner's own text; by default the book's.
        steps: how many times each training updates the model; by default
            as often as the book's.

    Returns:
        Whether every stage was passed.

    Raises:
        ValueError: if a file is missing or too short, or nothing has been
            predicted.
    """
    path = existing(file)
    where = sibling(path, "prediction.json")
    if steps is not None:
        check_steps(steps)
    options: dict[str, Any] = {"file": str(path), "steps": steps}
    if chapter_of(path) == str(translator_file.CHAPTER):
        return run_child("translator", options, 600)[0] == 0
    if not where.exists():
        raise ValueError(
            "one change is predicted before the run: got no "
            f"{where}. Make one: coursekit capstone {path} --change OLD NEW "
            "--predict NATS."
        )
    if text is not None and (length := len(load_text(text))) < SHORTEST:
        raise ValueError(
            f"a text has {SHORTEST:,} characters or more: got {length:,} in "
            f"{text}. Put several texts into one file."
        )
    prediction = predicted(where)
    steps = steps or LADDER_STEPS
    options |= {"steps": steps, "text": str(text or "")}
    options |= {"prediction": vars(prediction)}
    code, _, run = run_child("capstone", options, 3 * steps)
    if run is not None:
        report = sibling(path, "report.md")
        report.write_text(evidence(path, prediction, run), "utf-8")
        print(f"evidence: {report}")
    return code == 0


def evidence(file: Path, prediction: Prediction, run: dict[str, Any]) -> str:
    """The report of one page: numbers, samples, prediction and result."""
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    same = "as it was then" if now == prediction.file else "changed since then"
    difference = run["changed"] - run["loss"]
    chance = run["reseeded"] - run["loss"]
    verdict = "larger than that, and no chance alone"
    if abs(difference) <= max(abs(chance), spread()):
        verdict = "no larger, so it may be chance"
    if not chance:
        verdict = "not compared with chance, since `run` sets a seed itself"
    error = abs(difference - prediction.expected)
    samples = "\n\n".join(
        f"{title}:\n\n```text\n{sample}\n```"
        for title, sample in run["samples"].items()
    )
    change = "\n".join(
        [f"-{line}" for line in prediction.old.splitlines()]
        + [f"+{line}" for line in prediction.new.splitlines()]
    )
    return f"""# {file.name} on {run["text"]}

{run["characters"]:,} characters, the last tenth held out;
{run["parameters"]:,} parameters, {run["steps"]:,} steps.

| stage | measured | to be compared with |
|---|--:|---|
| held-out loss, nats per character | {run["loss"]:.3f} | {run["bar"]} |
| the same, bits per character | {run["loss"] / math.log(2):.3f} | |
| cached = uncached | {run["tokens"]} tokens | each of them |
| tokens per second | {run["fast"]:.0f} | without cache {run["slow"]:.0f} |

## One change

```diff
{change}
```

| | nats per character |
|---|--:|
| held-out loss without it | {run["loss"]:.3f} |
| held-out loss with it | {run["changed"]:.3f} |
| difference | {difference:+.3f} |
| **predicted** | **{prediction.expected:+.3f}** |
| off by | {error:.3f} |

Another seed alone: {chance:+.3f}; seeds of the book's file: {spread():.3f}.
The difference is {verdict}.
Predicted {prediction.made}, SHA-256 `{prediction.digest}`;
the file is {same}.

## Samples

{samples}
"""


def capstone_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``coursekit capstone``."""
    add_file(parser)
    parser.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="your text [default: the book's]",
    )
    parser.add_argument(
        "--change",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="one change: what your file holds once, and what is put there",
    )
    parser.add_argument(
        "--predict",
        type=float,
        metavar="NATS",
        help="what the change adds to the held-out loss, in nats per "
        "character: below 0 if it helps; written down before the run",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="train for that many steps, each time; only after as many as "
        f"the book's is the loss compared with it [default: {LADDER_STEPS}]",
    )


def run_capstone(args: argparse.Namespace) -> int:
    """Your finished transformer on your own text, with a prediction.

    First predict what one change does, with --change and --predict; then run
    without them: every contract, the held-out loss, samples, the cache, the
    change. It writes FILE.report.md. A file of chapter 14 is a translator,
    and needs no prediction.
    Exit codes: 0 if every stage is passed, 1 if not, 2 for wrong input.
    """
    if (args.change is None) != (args.predict is None):
        raise ValueError(
            "a prediction is a change and a number: got one of --change and "
            "--predict. Give both, or neither to run."
        )
    if args.change is not None:
        old, new = args.change
        predict(args.file, old, new, args.predict)
        return 0
    return 0 if capstone(args.file, args.text, args.steps) else 1
