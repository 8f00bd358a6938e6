"""Looking inside: small models that learn to repeat, and SmolLM2.

The first part trains models of attention alone, with two blocks and with one,
on texts that begin again, and looks at their heads on the way.  The second
looks into SmolLM2-135M-Instruct, in a third party's 4-bit file: induction
heads, sinks, the lens, patching, pronouns, analogies.  It needs `make
models`; the page shows what is stored.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit.config import GPTConfig
from coursekit.decoder import GPT
from coursekit.interpret import (
    Edit,
    ablate,
    head_effects,
    induction_keys,
    intervene,
    mean_heads,
    mean_weight_on,
    patch_effects,
    watch,
)
from coursekit.pretrained.published import load_published
from coursekit.saved_models import Loaded
from results.record import options, record

LETTERS, LENGTH, BATCH, EVERY = 32, 48, 32, 20
START = LETTERS  # the token that every text begins with


# -- models that learn to repeat ---------------------------------------------
def draw(n: int, g: torch.Generator, start: bool = True) -> Tensor:
    """(n, T) texts: 10 to 20 letters in random order, again and again."""
    order = torch.rand(n, LETTERS, generator=g).argsort(1)
    period = torch.randint(10, 21, (n, 1), generator=g)
    ids = order.gather(1, torch.arange(LENGTH) % period)
    return F.pad(ids, (1, 0), value=START) if start else ids


def make(n_layers: int, n_heads: int = 2, d_model: int = 32) -> GPT:
    """Blocks of attention alone."""
    config = GPTConfig(
        vocab_size=LETTERS + 1,
        max_len=LENGTH + 1,
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        d_ff=0,
        positions="rope",
        tie_embeddings=False,
    )
    return GPT(config)


def nats(model: GPT, ids: Tensor) -> tuple[float, float]:
    """Loss where all is new, and where the text has begun again."""
    losses = F.cross_entropy(
        model(ids[:, :-1]).mT, ids[:, 1:], reduction="none"
    )
    known = induction_keys(ids)[:, :-1] >= 0
    return losses[~known].mean().item(), losses[known].mean().item()


@torch.no_grad()
def look(model: GPT, exam: Tensor) -> dict[str, list]:
    """Losses and scores of a model as it is now."""
    weights = watch(model, exam[:, :-1]).weights
    before = torch.arange(weights.size(-1)).expand(len(exam), -1) - 1
    keys = induction_keys(exam)[:, :-1]
    return {
        "nats": [round(v, 3) for v in nats(model, exam)],
        "induction": rounded(mean_weight_on(weights, keys)),
        "before": rounded(mean_weight_on(weights, before)),
    }


def rounded(x: Tensor, digits: int = 3) -> list:
    """A tensor as lists of rounded numbers."""
    scale = 10**digits
    return (x.double() * scale).round().div(scale).tolist()


def learn(model: GPT, seed: int, steps: int, start: bool = True) -> list:
    """Train; losses and scores every so many steps."""
    adam = torch.optim.AdamW(model.parameters(), 5e-3, weight_decay=0.0)
    g = torch.Generator().manual_seed(seed)
    exam = draw(32, torch.Generator().manual_seed(10_000), start)
    curve = []
    for step in range(steps + 1):
        if step % EVERY == 0:
            curve.append(look(model, exam))
        ids = draw(BATCH, g, start)
        loss = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return curve


@torch.no_grad()
def without(model: GPT, start: bool) -> dict[str, list]:
    """Each head silent in its turn; and what heads do without work."""
    exam = draw(32, torch.Generator().manual_seed(20_000), start)
    ids, keys = exam[:, :-1], induction_keys(exam)[:, :-1]
    means = mean_heads(model, ids)
    found = {
        f"{part} {how}": rounded(
            head_effects(model, lambda i=i: nats(model, exam)[i], given)
        )
        for how, given in (("mean", means), ("zero", None))
        for i, part in enumerate(("new", "again"))
    }
    weights = watch(model, ids).weights
    places = torch.arange(ids.size(1)).expand_as(keys)
    # From the fourth place on: there is something else to look at.
    idle = torch.where((keys < 0) & (places > 3), 0, -1)
    busy = torch.where(keys >= 0, 0, -1)
    found["first when idle"] = rounded(mean_weight_on(weights, idle))
    found["first when busy"] = rounded(mean_weight_on(weights, busy))
    found["own when idle"] = rounded(
        mean_weight_on(weights, torch.where(idle == 0, places, -1))
    )
    scores = []
    for head in range(weights.size(2)):
        seen: list[Tensor] = []
        with intervene(
            model,
            heads=ablate([(0, head)], means),
            weights=lambda i, w, to=seen: to.append(w),
        ):
            model(ids)
        scores.append(rounded(mean_weight_on(torch.stack(seen), keys)[-1]))
    found["induction without head of block 1"] = scores
    return found


def repeaters(seeds: Sequence[int], steps: int) -> dict[str, list]:
    """Two blocks, with and without a first token; one block, for longer."""
    found: dict[str, list] = {}
    for name, n_layers, width, start, longer in (
        ("two blocks", 2, 32, True, 1),
        ("two blocks, no start", 2, 32, False, 1),
        ("one block", 1, 48, True, 3),
    ):
        for seed in seeds:
            torch.manual_seed(seed)
            model = make(n_layers, d_model=width)
            run = {
                "parameters": sum(p.numel() for p in model.parameters()),
                "curve": learn(model, seed, longer * steps, start),
            }
            if n_layers == 2:
                run |= without(model, start)
            found.setdefault(name, []).append(run)
            print(name, [c["nats"][1] for c in run["curve"]], flush=True)
    return found


# -- a published model -------------------------------------------------------
TEXTS = [  # cut to one length
    "The baker opened the shop early because the bread had to be ready by six",
    "My grandmother kept old letters in a box under the stairs and never read",
    "When the rain stopped, the children ran outside to look for a big snail",
    "A good map shows the roads, but it does not tell you which one is",
    "Every winter the lake froze so hard that people could walk across it to",
    "He wrote the number on a piece of paper and put it into his pocket",
    "The train was late again, so we waited in the cold hall and drank tea",
    "Nobody in the village knew who had painted the old door blue that summer",
]
CAPITALS = (
    "France Paris, Italy Rome, Germany Berlin, Spain Madrid, Japan Tokyo, "
    "Russia Moscow, China Beijing, England London, Egypt Cairo, "
    "Greece Athens, Ireland Dublin, Portugal Lisbon, Austria Vienna, "
    "Poland Warsaw, Cuba Havana, Peru Lima"
)
PRONOUNS = [  # a sentence, what makes it the first noun, what the second
    ("cup", "box", "The cup did not fit into the box", "big", "small"),
    ("key", "lock", "The key did not go into the lock", "thick", "narrow"),
    ("rock", "bag", "The rock fell out of the bag", "heavy", "weak"),
    ("ball", "glass", "The ball went through the glass", "hard", "thin"),
    ("truck", "bus", "The truck went past the bus", "fast", "slow"),
    ("animal", "street", "The animal did not cross the street", "tired",
     "wide"),
]  # fmt: skip
ANALOGIES = """
man king woman queen, france paris germany berlin,
man uncle woman aunt, boy brother girl sister, he his she her,
france french spain spanish, japan yen europe euro,
russia moscow china beijing, italy rome greece athens,
big bigger small smaller, good better bad worse,
slow slower fast faster, walk walked jump jumped, go went see saw,
eat eating sleep sleeping, dog dogs house houses,
child children foot feet, bird fly fish swim,
teacher school doctor hospital, day night summer winter,
hot cold tall short, one two three four,
monday tuesday friday saturday, up down left right,
wood tree wool sheep, sing singer dance dancer
"""
NAMES = """
france paris germany berlin french spain spanish japan europe russia moscow
china beijing italy rome greece athens monday tuesday friday saturday
"""


def token(loaded: Loaded, word: str) -> int | None:
    """A word's one token, with a space before it; None if it has more."""
    ids = loaded.tokenizer.encode(" " + word)
    return ids[0] if len(ids) == 1 else None


def rows(loaded: Loaded, texts: Sequence[str], size: int) -> Tensor:
    """The first tokens of each text."""
    return torch.tensor([loaded.tokenizer.encode(t)[:size] for t in texts])


def mean_nats(model: GPT, ids: Tensor, first: int) -> float:
    """Loss of the tokens from one place on."""
    losses = F.cross_entropy(
        model(ids[:, :-1]).mT, ids[:, 1:], reduction="none"
    )
    return round(losses[:, first:].mean().item(), 3)


def induction(loaded: Loaded, seed: int, n: int = 20) -> dict:
    """Random tokens, twice: which heads find the way back, and without?"""
    model, g = loaded.model, torch.Generator().manual_seed(seed)
    once = torch.randint(1000, 40_000, (2, n), generator=g)
    ids = torch.cat([once, once], 1)
    text = rows(loaded, TEXTS[:2], 14)
    seen = watch(model, ids[:, :-1])
    losses = F.cross_entropy(seen.output.mT, ids[:, 1:], reduction="none")
    keys = induction_keys(ids)[:, :-1]
    places = torch.arange(2 * n - 1).expand_as(keys)
    scores = mean_weight_on(seen.weights, keys)
    means, n_heads = seen.heads.mean((1, 3)), scores.size(1)
    order = scores.flatten().argsort(descending=True).tolist()
    rest = torch.tensor(order[40:])
    sets = {"none": [], "best ten": order[:10]}
    for i in range(2):
        drawn = rest[torch.randperm(len(rest), generator=g)[:10]]
        sets[f"random ten {i + 1}"] = drawn.tolist()
    out = {
        "induction": rounded(scores),
        "before": rounded(mean_weight_on(seen.weights, places - 1)),
        "nats by place": rounded(losses.mean(0), 2),
        "best": [divmod(h, n_heads) for h in order[:10]],
        "without": {},
    }
    for name, flat in sets.items():
        which = [divmod(h, n_heads) for h in flat]
        with intervene(model, heads=ablate(which, means)):
            out["without"][name] = {
                "again": mean_nats(model, ids, n),
                "text": mean_nats(model, text, 3),
            }
        print("induction without", name, out["without"][name], flush=True)
    return out


def hide(place: int, where: tuple[int, int | None] | None = None) -> Edit:
    """An edit of weights: no later place looks at this one.

    With ``where`` that holds in one block alone, and in one of its heads.
    """

    def edit(i: int, w: Tensor) -> Tensor | None:
        if where is not None and where[0] != i:
            return None
        w = w.clone()
        head = slice(None)
        if where is not None and where[1] is not None:
            head = slice(where[1], where[1] + 1)
        w[:, head, place + 1 :, place] = 0
        return w / w.sum(-1, keepdim=True)

    return edit


def sinks(loaded: Loaded) -> dict:
    """Attention sinks: where heads attend when nothing is relevant."""
    model = loaded.model
    plain = rows(loaded, TEXTS[:4], 13)
    out: dict = {"share": {}}
    others = {
        f"{name!r} first": torch.cat(
            [rows(loaded, [name], 1).expand(len(plain), 1), plain], 1
        )
        for name in (",", "Monday")
    }
    for name, ids in {"as it is": plain, **others}.items():
        seen = watch(model, ids[:, :-1])
        late = torch.arange(ids.size(1) - 1).expand(len(ids), -1) >= 5
        share = [
            mean_weight_on(seen.weights, torch.where(late, place, -1))
            for place in (0, 1, 2)
        ]
        out["share"][name] = [round(s.mean().item(), 3) for s in share]
        if name == "as it is":
            out["by head"] = rounded(share[0])
            out["stream"] = rounded(seen.stream.norm(dim=-1).mean(1)[:, :8], 1)
            values = []
            for i, block in enumerate(model.blocks):
                y = block.attention_norm(seen.stream[i])
                v = block.attention.w_v(y).detach().norm(dim=-1).mean(0)
                values.append((v[0] / v[3:].mean()).item())
            out["first value against others"] = [round(v, 3) for v in values]
        print("sinks", name, out["share"][name], flush=True)
    out["nats"] = {"nothing": mean_nats(model, plain, 5)}
    for place in (0, 1, 2):
        with intervene(model, weights=hide(place)):
            out["nats"][f"place {place}"] = mean_nats(model, plain, 5)
    print("hidden:", out["nats"], flush=True)
    return out


def rank(logits: Tensor, which: Tensor) -> list[list[int]]:
    """Rank of one token among the logits: (L, B, V), (B,) to (B, L)."""
    at = which.expand(len(logits), -1)[..., None]
    return (logits > logits.gather(-1, at)).sum(-1).T.tolist()


def capitals(loaded: Loaded) -> dict:
    """The lens on what a model knows, and where it is brought back from."""
    model = loaded.model
    pairs = [pair.split() for pair in CAPITALS.split(", ")]
    pairs = [p for p in pairs if all(token(loaded, w) for w in p)][:12]
    ids = rows(loaded, [f"The capital of {a} is" for a, _ in pairs], 5)
    right = torch.tensor([token(loaded, b) for _, b in pairs])
    stream = watch(model, ids).stream[:, :, -1]
    with torch.no_grad():
        logits = model.logits(stream)
        bare = model.embedding.unembed(stream)
    ranks = {
        "right": rank(logits, right),
        "other": rank(logits, right.roll(1)),
    }
    known = [i for i in range(len(pairs)) if ranks["right"][i][-1] < 10][:4]
    chosen = right[known]
    other, batch = chosen.roll(1), torch.arange(len(known))
    heights = [*range(0, 22, 3), 22, 23, 24, 27, 30]

    def margin(x: Tensor) -> Tensor:
        return x[batch, -1, chosen] - x[batch, -1, other]

    effects = patch_effects(
        model, ids[known], ids[known].roll(1, 0), margin, heights, [2, 3, 4]
    )
    before = margin(model(ids[known])).mean()
    weights = watch(model, ids[known]).weights[:, :, :, -1].mean(1)
    blind: list[list[float]] = []  # without the look at the country
    for i in range(21, 24):
        blind.append([])
        for head in range(weights.size(1)):
            with intervene(model, weights=hide(3, (i, head))):
                lost = 1 - margin(model(ids[known])).mean() / before
            blind[-1].append(round(lost.item(), 3))
    with intervene(model, weights=hide(3, (23, None))):
        lost = 1 - margin(model(ids[known])).mean() / before
    out = {
        "pairs": pairs,
        "ranks": ranks,
        "bare": rank(bare, right),
        "best of the first": [
            loaded.tokenizer.decode([x.argmax().item()]) for x in logits[:, 0]
        ],
        "patched": [pairs[i] for i in known],
        "heights": heights,
        "places": [loaded.tokenizer.decode([t]) for t in ids[0].tolist()][2:],
        "effects": [rounded(effects[:, i]) for i in range(len(known))],
        "looks": rounded(weights[21:24, :, 3]),
        "blind": blind,
        "block 24 blind": round(lost.item(), 3),
    }
    print("capitals", [r[-1] for r in ranks["right"]], flush=True)
    return out


def pronouns(loaded: Loaded) -> list[dict]:
    """Which noun is meant, when the last word decides."""
    out = []
    for one, two, text, first, second in PRONOUNS:
        margins = []
        for word in (first, second):
            ask = f"{text} because it was too {word}. What was too {word}? The"
            ids = torch.tensor([loaded.tokenizer.encode(ask)])
            with torch.no_grad():
                logits = loaded.model(ids)[0, -1]
            a, b = (token(loaded, w) for w in (one, two))
            margins.append(round((logits[a] - logits[b]).item(), 2))
        out.append({"text": text, "nouns": [one, two], "margins": margins})
        print(out[-1], flush=True)
    return out


def analogies(loaded: Loaded) -> dict:
    """Chapter 2's analogies, in a model's own table of tokens."""
    table = F.normalize(loaded.model.embedding.weight.detach(), dim=-1)
    words = [
        loaded.tokenizer.decode([i]).strip().lower() for i in range(len(table))
    ]

    def nearest(x: Tensor, leave_out: Sequence[str] = ()) -> list[str]:
        found: list[str] = []
        for i in (table @ x).topk(60).indices.tolist():
            word = words[i]
            if word and word not in found and word not in leave_out:
                found.append(word)
        return found[:5]

    counts = dict.fromkeys(("in", "out", "asked", "alone", "lines"), 0)
    out: dict = {}
    for line in re.split(r",\s*", ANALOGIES.strip()):
        asked = line.split()
        ids = [
            token(loaded, w.capitalize() if w in NAMES.split() else w)
            for w in asked
        ]
        if None in ids:
            continue
        a, b, c, _ = (table[i] for i in ids)
        x = b - a + c
        counts["lines"] += 1
        counts["in"] += nearest(x)[0] == asked[3]
        counts["asked"] += nearest(x)[0] in asked[:3]
        counts["out"] += nearest(x, asked[:3])[0] == asked[3]
        counts["alone"] += nearest(c, asked[:3])[0] == asked[3]
        if asked[1] == "king":
            out["king"] = nearest(x)
            out["king, left out"] = nearest(x, asked[:3])
            out["woman alone"] = nearest(c, asked[:3])
            out["cosines"] = {
                w: round(F.cosine_similarity(x, table[i], dim=0).item(), 2)
                for w, i in zip(asked, ids, strict=True)
            }
    print("analogies", counts, out, flush=True)
    return {"counts": counts, **out}


# -- the command -------------------------------------------------------------
parser = options(__doc__, seeds=[0, 1, 2], steps=240)


def main() -> None:
    """Both parts."""
    args = parser.parse_args()
    torch.set_num_threads(1)
    with record("interpret", args.seeds) as metrics:
        loaded = load_published("smollm2")
        with torch.no_grad():
            metrics["smollm2"] = {
                "analogies": analogies(loaded),
                "pronouns": pronouns(loaded),
                "capitals": capitals(loaded),
                "induction": induction(loaded, 0),
                "sinks": sinks(loaded),
            }
        metrics["every"] = EVERY
        metrics["repeaters"] = repeaters(args.seeds, args.steps)


if __name__ == "__main__":
    main()
