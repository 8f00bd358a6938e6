"""``coursekit capstone``, in the process of the learner's file.

A finished file is checked stage by stage, and the report gets its numbers.
"""

import ast
import math
import tempfile
import time
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coursekit.data import load_text
from coursekit_classroom.yourfile.check_step import SIZES, evaluate, verify
from coursekit_classroom.yourfile.contracts.base import (
    ContractError,
    File,
    kind,
    title,
)
from coursekit_classroom.yourfile.expected_loss import compare, reference
from coursekit_classroom.yourfile.loading import LIMIT, guarded, load

OURS = "coursekit", "coursekit_classroom"
ALLOWED = ("coursekit.data", "coursekit.check", "coursekit_classroom.check")
GREEDY = 1e-6
SAMPLE = 300  # characters of a sample in the report
TRIAL = 60  # steps on a small text
Run = tuple[nn.Module, Any, float]


def imports(path: Path) -> None:
    """File: is all your own, with no part of the book's package."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        home = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in (f"{home}{alias.name}" for alias in node.names):
            inside = name.partition(".")[0] in OURS
            if inside and not f"{name}.".startswith(
                tuple(f"{allowed}." for allowed in ALLOWED)
            ):
                raise ContractError(
                    "a finished file uses of the book's package only its "
                    f"checks and data: got {name} in line {node.lineno}. "
                    "Write it yourself."
                )


def run(file: File, text: str, steps: int, seed: int = 0) -> Run:
    """Call the learner's `run`, and check what it returns."""
    torch.manual_seed(seed)
    returned = file["run"](text, steps)
    wanted, names = (nn.Module, object, Tensor | Real), kind(returned)
    if isinstance(returned, tuple):
        names = ", ".join(type(value).__name__ for value in returned)
        fits = len(returned) == 3 and all(map(isinstance, returned, wanted))
        if fits and hasattr(returned[1], "encode"):
            model, tokenizer, loss = returned
            return model.eval(), tokenizer, float(loss)
    raise ContractError(
        "run(text, steps) returns the trained model, its tokenizer and the "
        f"held-out loss, in this order: got {names}. Return the three."
    )


def per_token(
    model: nn.Module, tokenizer: Any, text: str
) -> tuple[float, int]:
    """The mean loss of a text, in nats per token, and its tokens."""
    ids = torch.tensor(tokenizer.encode(text))
    context = min(getattr(model, "context", SIZES.context), len(ids) - 1)
    return evaluate(model, ids, context), len(ids)


def per_character(model: nn.Module, tokenizer: Any, text: str) -> float:
    """The loss of a text's last tenth, in nats per character."""
    tail = text[len(text) * 9 // 10 :]
    loss, tokens = per_token(model, tokenizer, tail)
    return loss * tokens / len(tail)


def held_out(file: File) -> None:
    """Held-out loss: of the last tenth, which the training has not seen."""
    learned, unseen = "ab " * 900, "cd " * 100
    model, tokenizer, loss = run(file, learned + unseen, TRIAL)
    [old, _], [new, _] = (
        per_token(model, tokenizer, text) for text in (learned, unseen)
    )
    if new - old < 1:
        raise ContractError(
            "the last tenth of the text is held out: where it alone says "
            f"'cd cd', it has a loss of {new:.2f} after training, the rest "
            f"{old:.2f}. Train on the first nine tenths only."
        )
    if loss < (old + new) / 2:
        raise ContractError(
            "the loss that counts is that of the held-out tenth, here "
            f"{new:.2f}: got {loss:.2f}, and the training text has "
            f"{old:.2f}. Evaluate on what was held out."
        )


def bigram(text: str) -> float:
    """Nats per character of a table of pairs, counted on nine tenths."""
    ids = {char: i for i, char in enumerate(sorted(set(text)))}
    data = torch.tensor([ids[char] for char in text])
    cut, n = len(data) * 9 // 10, len(ids)
    pairs = data[:-1] * n + data[1:]
    counts = torch.bincount(pairs[: cut - 1], minlength=n * n).double() + 0.1
    counts = counts.view(n, n)
    log_p = (counts / counts.sum(1, keepdim=True)).log().flatten()
    return -log_p[pairs[cut - 1 :]].mean().item()


def time_for(file: File, text: str, steps: int) -> float:
    """The seconds that one training of that many steps takes, roughly."""
    began = time.perf_counter()
    run(file, text, 1)
    first = time.perf_counter()
    run(file, text, 11)
    fixed = first - began
    per_step = max((time.perf_counter() - first - fixed) / 10, 1e-4)
    return fixed + steps * per_step


def learned(
    model: nn.Module, tokenizer: Any, text: str, steps: int, is_books: bool
) -> dict[str, Any]:
    """The held-out loss, what it has to reach, and whether it does."""
    loss = per_character(model, tokenizer, text)
    if is_books:
        passed, verdict = compare(loss, reference(12).losses, steps)
        bar = verdict.strip("✓✗ ").splitlines()[0]
    else:
        baseline = bigram(text)
        passed = loss < baseline
        bar = f"{baseline:.3f}, counted pairs of characters"
        verdict = f"{'✓' if passed else '✗'} below {bar}"
    print(f"held-out loss {loss:.3f} nats per character\n{verdict}")
    return {"passed": passed, "loss": loss, "bar": bar}


def drawn(
    file: File, model: nn.Module, tokenizer: Any, text: str
) -> dict[str, str]:
    """Samples: a low temperature takes what the model finds probable."""
    # Not with the spaces before a title, which may go on for ever.
    opening = (text.lstrip() or text)[:20]
    start = torch.tensor([tokenizer.encode(opening)])
    samples, surprise = {}, []
    for temperature in (0.5, 1.5):
        torch.manual_seed(0)
        ids = file["generate"](model, start, SAMPLE, temperature, 1.0)
        sample = tokenizer.decode(ids[0].tolist())
        samples[f"Temperature {temperature}"] = sample[: len(opening) + SAMPLE]
        surprise.append(per_token(model, tokenizer, sample)[0])
    if not surprise[0] < surprise[1]:
        raise ContractError(
            "at temperature 0.5 the model's own text is more probable to it "
            f"than at 1.5: got {surprise[0]:.2f} and {surprise[1]:.2f} nats "
            "per token. Divide the logits by the temperature."
        )
    return samples


@torch.no_grad()
def cached(
    file: File, model: nn.Module, tokenizer: Any, text: str
) -> dict[str, Any]:
    """Cache: on the trained model too, generation is as without it."""
    context = getattr(model, "context", SIZES.context)
    start = torch.tensor([tokenizer.encode(text[:20])])[:, : context // 2]
    n_new = context - start.size(1)
    began = time.perf_counter()
    ids: Tensor = file["generate"](model, start, n_new, 1.0, GREEDY)
    fast = time.perf_counter() - began
    began = time.perf_counter()
    for end in range(start.size(1), ids.size(1)):
        logits = model(ids[:, :end])[0, -1]
        best, token = logits.max().item(), ids[0, end]
        if best - logits[token].item() > 1e-3:
            raise ContractError(
                "with the cache, the most probable token is the one without "
                f"it: got {int(token)} at position {end}, and without the "
                f"cache {int(logits.argmax())}. Compare the logits of both."
            )
    slow = time.perf_counter() - began
    print(f"    {n_new} tokens: {n_new / fast:.0f} per second, ", end="")
    print(f"without the cache {n_new / slow:.0f}")
    return {"tokens": n_new, "fast": n_new / fast, "slow": n_new / slow}


def changed(path: Path, prediction: dict[str, Any]) -> File:
    """The file with the one change that was predicted."""
    source = path.read_text("utf-8")
    if source.count(prediction["old"]) != 1:
        raise ContractError(
            "the file still holds what is to be changed, once: got "
            f"{source.count(prediction['old'])} times "
            f"{prediction['old']!r}. Predict again, or put it back."
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, f"changed_{path.name}")
        source = source.replace(prediction["old"], prediction["new"])
        copy.write_text(source, "utf-8")
        return load(copy, 12)


def stages(
    path: Path,
    text: str,
    steps: int,
    prediction: dict[str, Any],
    name: str,
) -> dict[str, Any]:
    """Go through all stages; what the report needs.

    Raises:
        ContractError: at the first that is not passed.
    """
    with guarded(path, title(imports), LIMIT):
        imports(path)
    file = load(path, 12)
    for line in verify(path, file):
        print(line, flush=True)
    is_books = not name
    with guarded(path, title(held_out), 4 * LIMIT, file.parts.get("run")):
        held_out(file)
    print(f"✓ {title(held_out)}", flush=True)
    with guarded(path, "Your change: runs too", 4 * LIMIT):
        other = changed(path, prediction)
        run(other, text, 1)
    with guarded(path, "Training: the first steps", 4 * LIMIT):
        seconds = time_for(file, text, steps)
    print(
        f"Training for {steps:,} steps, three times, about "
        f"{3 * seconds:.0f} seconds.",
        flush=True,
    )
    with guarded(path, "Training: your text", 10 * seconds + LIMIT):
        model, tokenizer, _ = run(file, text, steps)
        measured = learned(model, tokenizer, text, steps, is_books)
    for check in (drawn, cached):
        with guarded(path, title(check), LIMIT, file.parts.get("generate")):
            extra = check(file, model, tokenizer, text)
        measured |= {"samples": extra} if check is drawn else extra
        print(f"✓ {title(check)}", flush=True)
    with guarded(path, "Your change: trains too", 20 * seconds + LIMIT):
        model, tokenizer, _ = run(other, text, steps)
        with_it = per_character(model, tokenizer, text)
        model, tokenizer, _ = run(file, text, steps, seed=1)
        reseeded = per_character(model, tokenizer, text)
    print(
        f"your change: {with_it - measured['loss']:+.3f} nats per character, "
        f"predicted {prediction['expected']:+.3f}\n"
        f"another seed alone: {reseeded - measured['loss']:+.3f}"
    )
    return measured | {
        "text": Path(name).name or "Shakespeare, the book's text",
        "characters": len(text),
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": steps,
        "changed": with_it,
        "reseeded": reseeded,
    }


def main(
    file: str, text: str, steps: int, prediction: dict[str, Any]
) -> tuple[bool, dict[str, Any]]:
    """Run the stages; whether all are passed, and what the report needs."""
    numbers = stages(
        Path(file).absolute(),
        load_text(text or "shakespeare"),
        steps,
        prediction,
        text,
    )
    return numbers["passed"] and math.isfinite(numbers["loss"]), numbers
