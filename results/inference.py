"""The writer of stories, smaller and faster: what it loses and what it gains.

Quantization: held-out nats and the three gates for each number of bits and
each group size.  Speculative decoding: how many tokens a run of the model
brings, with three drafts; the distribution of what is drawn, under the right
rule and under two wrong ones; processor time.  Batches: the time of a step,
from which a simulation predicts throughput.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coursekit import speculative
from coursekit.decoder import GPT
from coursekit.generation import generate
from coursekit.loss import token_loss
from coursekit.pretrained.formats import read_gguf
from coursekit.quantize import (
    matrices,
    quantize,
    quantized_bytes,
    quantized_copy,
)
from coursekit.sampling import sampler
from coursekit.saved_models import load
from coursekit.speculative import (
    CachedReader,
    acceptance,
    draw_with,
    expected_tokens,
    speculate,
)
from coursekit.steppers import GPTStepper
from coursekit.tokenizer import Tokenizer
from coursekit.training import evaluate
from coursekit.weights import own_weights
from results.distill import gates, held_out
from results.record import options, record, sha256

PROMPTS = (
    "The dog chased the cat because it was hungry. So the",
    "The dog chased the cat because it was scared. So the",
    "Lily gave Jack the kite. Now",
    "Lily showed Jack the kite. Now",
    "Anna Brown was a painter. The next day Anna",
    "It was a rainy day. The lion",
)
BITS, GROUPS = (8, 4, 3, 2), (None, 64, 32, 16)
N_NEW, DRAWS, ROWS = 48, 1500, (1, 2, 4, 8, 16, 32)
Rule = Callable[..., list[int]]


# -- quantization ------------------------------------------------------------
def rounded(model: GPT, tokenizer: Tokenizer, with_gates: bool) -> list[Any]:
    """Loss, bytes and gates at every number of bits and every group size."""
    test, found = held_out(tokenizer), []
    for bits in BITS:
        for size in GROUPS:
            copy = quantized_copy(model, bits, size)
            row: dict[str, Any] = {
                "bits": bits,
                "group": size,
                "bytes": quantized_bytes(model, bits, size),
                "loss": round(evaluate(copy, test), 4),
            }
            if with_gates and (size in (None, 32)):
                row["gates"] = gates(copy, tokenizer)
            print(row, flush=True)
            found.append(row)
    return found


# -- speculative decoding ----------------------------------------------------
def texts(
    target: GPT, draft: GPT, prompts: Sequence[list[int]], gamma: int
) -> dict[str, Any]:
    """Three texts for each prompt: tokens per run, next to the formula."""
    draw = draw_with(torch.Generator().manual_seed(gamma))
    readers = CachedReader(target), CachedReader(draft)
    begin = time.process_time()
    runs = [
        speculate(*readers, prompt, N_NEW, gamma, draw)
        for prompt in prompts
        for _ in range(3)
    ]
    seconds = time.process_time() - begin
    full = [
        (kept, drafted)
        for run in runs
        for kept, drafted in zip(run.generated, run.drafted, strict=True)
        if drafted == gamma
    ]
    looked_at = sum(min(kept, gamma) for kept, _ in full)
    alpha = sum(kept - 1 for kept, _ in full) / looked_at
    return {
        "gamma": gamma,
        "alpha": round(alpha, 4),
        "per run": round(statistics.mean(kept for kept, _ in full), 3),
        "formula": round(expected_tokens(alpha, gamma), 3),
        "seconds": round(seconds, 3),
    }


def plain_seconds(target: GPT, prompts: Sequence[list[int]]) -> float:
    """Processor time of the same number of tokens, one by one."""
    draw = draw_with(torch.Generator().manual_seed(0))
    read = CachedReader(target)
    begin = time.process_time()
    for prompt in prompts:
        for _ in range(3):
            text = [*prompt]
            for _ in range(N_NEW):
                text.append(draw(read(text, 1)[0]))
    return time.process_time() - begin


def mean_acceptance(
    target: GPT, draft: GPT, prompts: Sequence[list[int]]
) -> float:
    """The mean of α over the positions of the target's own texts."""
    found = []
    for seed, prompt in enumerate(prompts):
        g = torch.Generator().manual_seed(seed)
        new = generate(
            GPTStepper(target), [prompt], N_NEW, sampler(generator=g)
        )
        ids = torch.tensor([prompt + new[0]])
        with torch.no_grad():
            p, q = (
                m(ids)[0, len(prompt) - 1 :].softmax(-1)
                for m in (target, draft)
            )
        found += acceptance(p, q).tolist()
    return round(statistics.mean(found), 4)


def accept_always(drafted, p, q, draw):  # type: ignore[no-untyped-def]
    """The first control: what was drafted stands."""
    return [*drafted, draw(p[-1])]


def resample_from_p(drafted, p, q, draw):  # type: ignore[no-untyped-def]
    """The second: a rejected token is drawn from p, not from what is left."""
    new = speculative_verify(drafted, p, q, draw)
    if len(new) <= len(drafted):
        new[-1] = draw(p[len(new) - 1])
    return new


speculative_verify = speculative.verify
RULES: dict[str, Rule] = {
    "accept or resample": speculative.verify,
    "accept always": accept_always,
    "resample from p": resample_from_p,
}


def second_token(target: GPT, prompt: list[int]) -> Tensor:
    """The exact distribution of the second new token, (V,)."""
    with torch.no_grad():
        first = target(torch.tensor([prompt]))[0, -1].double().softmax(-1)
        likely = (first > 1e-7).nonzero()[:, 0]
        rows = torch.tensor([prompt]).expand(len(likely), -1)
        ids = torch.cat([rows, likely[:, None]], dim=1)
        second = target(ids)[:, -1].double().softmax(-1)
    total = first[likely] @ second
    return total / total.sum()


def goodness(counts: Tensor, p: Tensor) -> dict[str, float]:
    """Chi-square of counted tokens; rare ones are counted together."""
    n = counts.sum()
    common = n * p >= 5
    seen = torch.cat([counts[common], counts[~common].sum()[None]])
    expected = n * torch.cat([p[common], p[~common].sum()[None]])
    statistic = ((seen - expected) ** 2 / expected).sum()
    freedom = torch.tensor(len(seen) - 1.0)
    tail = torch.special.gammaincc(freedom / 2, statistic.float() / 2)
    return {
        "chi-square": round(statistic.item(), 1),
        "degrees": len(seen) - 1,
        "tail": float(f"{tail.item():.3g}"),
    }


def drawn(target: GPT, draft: GPT, prompt: list[int]) -> dict[str, Any]:
    """The second of two tokens, drawn many times by each rule."""
    p, found = second_token(target, prompt), {}
    for name, rule in RULES.items():
        speculative.verify = rule
        draw = draw_with(torch.Generator().manual_seed(0))
        readers = CachedReader(target), CachedReader(draft)
        counts = torch.zeros_like(p)
        for _ in range(DRAWS):
            # Three tokens, so that the second is drafted.
            counts[speculate(*readers, prompt, 3, 2, draw).tokens[1]] += 1
        found[name] = goodness(counts, p)
        print(name, found[name], flush=True)
    speculative.verify = speculative_verify
    return found


# -- batches -----------------------------------------------------------------
def step_times(model: GPT, prompt: list[int], repeats: int) -> list[Any]:
    """Milliseconds of processor time for a step of a batch, by its size."""
    took: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows in ROWS:
            stepper = GPTStepper(model)
            logits = stepper.prefill([prompt] * rows)
            begin = time.process_time()
            for _ in range(32):
                logits = stepper.step(logits.argmax(-1))
            took[rows].append((time.process_time() - begin) / 32 * 1000)
    return [
        {"rows": rows, "milliseconds": round(statistics.median(values), 3)}
        for rows, values in took.items()
    ]


# -- a file for others -------------------------------------------------------
def as_gguf(model: GPT, folder: Path) -> list[dict[str, Any]]:
    """Write a GGUF file by its own package, read it, compare with ours."""
    import gguf  # in requirements-models.txt

    found = []
    for name, bits in (("Q8_0", 8), ("Q4_0", 4)):
        kind = gguf.GGMLQuantizationType[name]
        path = folder / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, "gpt2")
        for key, tensor in own_weights(model).items():
            array = tensor.detach().numpy()
            if tensor.dim() < 2:
                writer.add_tensor(key, array)
                continue
            data = gguf.quants.quantize(array, kind)
            writer.add_tensor(key, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        _, tensors = read_gguf(path)
        off, ours = 0.0, 0.0
        for key, tensor in matrices(model):
            step = quantize(tensor, bits, 32).steps.max().item()
            theirs = (tensors[key] - tensor).abs().max().item()
            off = max(off, theirs / step)
            rows = quantized_copy(model, bits, 32).get_parameter(key)
            ours = max(ours, (rows - tensor).abs().max().item() / step)
        found.append(
            {
                "type": name,
                "bytes": path.stat().st_size,
                "counted": quantized_bytes(model, bits, 32, step_bytes=2),
                "most steps off": round(off, 3),
                "ours": round(ours, 3),
                "sha256": sha256(path),
            }
        )
        copy = quantized_copy(model)
        copy.load_state_dict(
            {k: tensors.get(k, v) for k, v in model.state_dict().items()}
        )
        found[-1]["model"] = copy
    return found


parser = options(__doc__, model="stories", draft="stories-student", repeats=3)


def speeds(
    target: GPT, drafts: dict[str, GPT], ids: list[list[int]], repeats: int
) -> dict[str, Any]:
    """Tokens per run and processor time of every draft."""
    plain = [plain_seconds(target, ids) for _ in range(repeats)]
    found: dict[str, Any] = {"plain": round(statistics.median(plain), 3)}
    for name, draft in drafts.items():
        rows = [texts(target, draft, ids, gamma) for gamma in (1, 2, 4, 6)]
        mean = mean_acceptance(target, draft, ids)
        found[name] = {"mean alpha": mean, "rows": rows}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Measure all of it, one thread."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load(args.model)
    student, _ = load(args.draft)
    ids = [tokenizer.encode(prompt) for prompt in PROMPTS]
    test = held_out(tokenizer)
    with record("inference", [0]) as metrics:
        metrics["prompts"] = PROMPTS
        metrics["bytes"] = sum(w.nbytes for w in own_weights(model).values())
        metrics["loss"] = round(evaluate(model, test, loss=token_loss), 4)
        metrics["gates"] = gates(model, tokenizer)
        metrics["quantized"] = rounded(model, tokenizer, True)
        drafts = {
            "student": student,
            "the model in 3 bits": quantized_copy(model, 3, 32),
        }
        metrics["speculative"] = speeds(model, drafts, ids, args.repeats)
        prompt = tokenizer.encode("The dog")
        metrics["drawn"] = drawn(model, student, prompt)
        metrics["steps"] = step_times(model, ids[0], args.repeats)
        with tempfile.TemporaryDirectory() as folder:
            files = as_gguf(model, Path(folder))
            for file in files:
                file["loss"] = round(evaluate(file.pop("model"), test), 4)
            metrics["gguf"] = files
        print(metrics["steps"], metrics["gguf"], flush=True)


if __name__ == "__main__":
    main()
