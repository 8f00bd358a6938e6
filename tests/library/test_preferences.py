"""Preferences and rewards against `trl`, enumeration, and wrong versions."""

import itertools
from functools import cache

import pytest
import torch
from compare import close, differ
from torch.nn import functional as F  # noqa: N812

from coursekit import preferences as pf
from coursekit import tuning
from coursekit.config import GPTConfig, TrainConfig
from coursekit.data import IGNORE
from coursekit.decoder import GPT
from coursekit.training import train
from coursekit_classroom.glue import result

V, T, D = 11, 13, 20
END = 1
PROMPTS = [[3, 5, 7], [2, 5]]
COMPARISONS = [([3, 5, 7], [2, END], [4, 6, END]), ([2], [9, 8, END], [END])]


def model(dtype=torch.float64, seed=0, **changes):
    """A small GPT; biases and norms are random too."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "max_len": T, "d_model": D, "n_heads": 5}
    made = GPT(GPTConfig(**sizes | {"n_layers": 2} | changes)).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p += 0.3 * torch.randn_like(p)
    return made.eval()


def theirs(part):
    """Numbers of `trl`, tensors in double precision."""
    return {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in result("preferences_oracle")[part].items()
    }


def draw(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64)


# -- against trl -------------------------------------------------------------
def test_equal_to_trl():
    """Losses, gradients and advantages; another β as the control."""
    t = theirs("reward")
    rewards = t["rewards"].requires_grad_()
    loss = pf.pairwise_loss(*rewards.chunk(2))
    loss.backward()
    close(loss, t["loss"], 1e-12)
    close(rewards.grad, t["gradient"], 1e-12)

    t = theirs("dpo")
    own = t["own"].requires_grad_()
    args = *own.sum(1).chunk(2), *t["reference"].sum(1).chunk(2)
    loss = pf.dpo_loss(*args, beta=t["beta"].item())
    loss.backward()
    close(loss, t["loss"], 1e-12)
    mask = t["gradient"] != 0
    close(own.grad[mask], t["gradient"][mask], 1e-12)
    differ(pf.dpo_loss(*args, beta=1.0), t["loss"])

    t = theirs("grpo")
    gains = pf.group_advantages(t["rewards"])
    close(gains.flatten(), t["advantages"], 1e-12)
    own = t["own"].requires_grad_()
    fixed = {
        "advantages": t["advantages"],
        "counts": t["mask"].bool(),
        "clip": t["clip"].item(),
        "reference": t["reference"],
    }
    loss = pf.grpo_loss(own, t["old"], **fixed, beta=t["beta"].item())
    loss.backward()
    close(loss, t["loss"], 1e-12)
    close(own.grad, t["gradient"], 1e-12)
    differ(pf.grpo_loss(own, t["old"], **fixed, beta=0.0), t["loss"])
    fixed["clip"] = 9.0
    differ(pf.grpo_loss(own, t["old"], **fixed, beta=0.3), t["loss"])


# -- what is best ------------------------------------------------------------
def goal(log_probs, reference, rewards, beta):
    """Expected reward, less β times the divergence."""
    p = log_probs.exp()
    return (p * (rewards - beta * (log_probs - reference))).sum()


def test_no_policy_is_better():
    """Gradient ascent from elsewhere ends there; the goal is β ln Z."""
    reference, rewards = draw(7).log_softmax(-1), draw(7, seed=1)
    best = pf.best_policy(reference, rewards, beta=0.5)
    top = goal(best, reference, rewards, 0.5)
    close(top, 0.5 * (reference + rewards / 0.5).logsumexp(-1), 1e-12)
    for seed in range(20):
        other = (best + 0.3 * draw(7, seed=seed + 2)).log_softmax(-1)
        assert goal(other, reference, rewards, 0.5) < top
    logits = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    for _ in range(4000):
        loss = -goal(logits.log_softmax(-1), reference, rewards, 0.5)
        (slope,) = torch.autograd.grad(loss, logits)
        logits = (logits - slope).detach().requires_grad_()
    close(logits.softmax(-1), best.exp(), 1e-4)


def test_a_large_beta_keeps_the_reference_and_a_small_one_the_best_answer():
    reference, rewards = draw(5).log_softmax(-1), draw(5, seed=1)
    close(pf.best_policy(reference, rewards, 1e9), reference, 1e-6)
    one = pf.best_policy(reference, rewards, 1e-3).exp()
    assert one.argmax() == rewards.argmax()
    assert one.max() > 1 - 1e-9


def test_dpo_finds_the_best_policy():
    """All pairs of four answers, each as often as Bradley and Terry say."""
    reference, rewards = draw(4).log_softmax(-1), draw(4, seed=1)
    pairs = list(itertools.permutations(range(4), 2))
    better, worse = (torch.tensor(side) for side in zip(*pairs, strict=True))
    often = (rewards[better] - rewards[worse]).sigmoid()
    logits = reference.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([logits], max_iter=300)

    def closure():
        optimizer.zero_grad()
        own = logits.log_softmax(-1)
        loss = sum(
            w * pf.dpo_loss(own[b], own[c], reference[b], reference[c], 0.5)
            for w, b, c in zip(often, better, worse, strict=True)
        )
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    best = pf.best_policy(reference, rewards, 0.5)
    close(logits.log_softmax(-1), best, 1e-4)
    differ(reference, best)


# -- the gradient ------------------------------------------------------------
def every_answer(made, prompt, length):
    """All answers of a length, END inside or not, with log-probability."""
    found = []
    for answer in itertools.product(range(V), repeat=length):
        if END in answer[:-1]:
            continue
        found.append((prompt, list(answer)))
    batch = tuning.answer_batch(found, END)
    return found, batch


def exact_and_estimated(made, baseline):
    """∇E[r] by enumeration, and the mean of the estimator over π."""
    pairs, batch = every_answer(made, [3, 5], 2)
    # An answer that ends at once has one token.
    single = [([3, 5], [END])]
    ends = tuning.answer_batch(single, END)
    log_probs = torch.cat([
        pf.answer_log_probs(made, b.inputs["ids"], b.targets).sum(1)
        for b in (batch, ends)
    ])  # fmt: skip
    rewards = torch.tensor(
        [float(sum(a) % 3) for _, a in pairs + single], dtype=torch.float64
    )
    p = log_probs.exp()
    close(p.sum(), torch.ones((), dtype=torch.float64), 1e-12)
    weights = [made.embedding.weight, made.blocks[0].attention.w_q.weight]
    exact = torch.autograd.grad(
        -(p * rewards).sum(), weights, retain_graph=True
    )
    # The mean over n answers drawn from π, as n grows: weights p instead.
    gains = (rewards - baseline) * p.detach() * len(p)
    loss = pf.policy_gradient_loss(log_probs, gains)
    estimated = torch.autograd.grad(loss, weights)
    return exact, estimated


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_estimator_is_right_on_average(baseline):
    """Over every answer of an enumerable model, with any baseline."""
    exact, estimated = exact_and_estimated(model(), baseline)
    for a, b in zip(exact, estimated, strict=True):
        assert a.abs().max() > 1e-3
        close(a, b, 1e-10)


def test_a_baseline_that_depends_on_the_answer_is_no_baseline():
    """The control: the reward itself taken off, and nothing is left."""
    log_probs = draw(5).log_softmax(-1).requires_grad_()
    rewards = draw(5, seed=1)
    p = log_probs.detach().exp()
    loss = pf.policy_gradient_loss(log_probs, (rewards - rewards) * p)
    (slope,) = torch.autograd.grad(loss, log_probs)
    assert not slope.any()


def test_drawn_answers_estimate_the_gradient():
    """From 4,000 draws of five answers, within four standard errors."""
    logits, rewards = draw(5).requires_grad_(), draw(5, seed=1)
    p = logits.softmax(-1)
    (exact,) = torch.autograd.grad(-(p * rewards).sum(), logits)
    g = torch.Generator().manual_seed(3)
    drawn = torch.multinomial(p.detach(), 4000, True, generator=g)
    each = rewards[drawn, None] * (p.detach() - F.one_hot(drawn, 5))
    error = each.std(0) / 4000**0.5
    loss = pf.policy_gradient_loss(logits.log_softmax(-1)[drawn],
                                   rewards[drawn])  # fmt: skip
    (slope,) = torch.autograd.grad(loss, logits)
    close(slope, each.mean(0), 1e-10)
    assert ((slope - exact).abs() < 4 * error).all()
    assert ((slope + exact).abs() > 4 * error).any()  # the wrong sign


def test_grpo_begins_as_the_policy_gradient():
    """With π = π_old nothing is clipped: the gradient of REINFORCE."""
    logits = draw(3, 4).requires_grad_()
    log_probs = -F.softplus(logits)
    counts = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    gains = draw(3, seed=2)
    old = log_probs.detach()
    (a,) = torch.autograd.grad(
        pf.grpo_loss(log_probs, old, gains, counts),
        logits,
        retain_graph=True,
    )
    means = (log_probs * counts).sum(1) / counts.sum(1)
    (b,) = torch.autograd.grad(pf.policy_gradient_loss(means, gains), logits)
    close(a, b, 1e-12)


def test_the_estimate_of_kl_is_right():
    """Its mean under π is the divergence, and it is never negative."""
    own, ref = draw(9).log_softmax(-1), draw(9, seed=1).log_softmax(-1)
    each = pf.kl_estimate(own, ref)
    assert (each >= 0).all()
    exact = (own.exp() * (own - ref)).sum()
    close((own.exp() * each).sum(), exact, 1e-12)
    differ((ref.exp() * each).sum(), exact)


def test_groups_without_a_difference_say_nothing():
    rewards = torch.tensor([[1.0, 1, 1], [0, 0, 3]])
    gains = pf.group_advantages(rewards)
    assert not gains[0].any()
    close(gains[1], torch.tensor([-1, -1, 2]) / 3**0.5, 1e-3)
    with pytest.raises(ValueError, match=r"groups of 1\. Draw two"):
        pf.group_advantages(rewards[:, :1])


# -- batches -----------------------------------------------------------------
def test_log_probs_are_those_of_the_answer_alone():
    made, pair = model(), ([3, 5, 7], [2, 9, END])
    batch = tuning.answer_batch([pair, ([4], [6])], 0)
    got = pf.answer_log_probs(made, batch.inputs["ids"], batch.targets)
    rows = made(torch.tensor([[3, 5, 7, 2, 9]])).log_softmax(-1)[0]
    by_hand = [rows[2 + i, token] for i, token in enumerate(pair[1])]
    close(got[0].sum(), sum(by_hand), 1e-12)
    assert not got[batch.targets == IGNORE].any()


def test_answers_are_drawn_from_the_model():
    """Frequencies of the first token, and where an answer ends."""
    made = model()
    g = torch.Generator().manual_seed(0)
    pairs = pf.sample_answers(made, PROMPTS, 1500, END, 3, g)
    assert [p for p, _ in pairs[::1500]] == PROMPTS
    for n, prompt in enumerate(PROMPTS):
        p = made(torch.tensor([prompt]))[0, -1].softmax(-1)
        first = [a[0] for _, a in pairs[1500 * n : 1500 * (n + 1)]]
        seen = torch.bincount(torch.tensor(first), minlength=V) / 1500
        assert (seen - p).abs().max() < 0.05
    lengths = {len(a) for _, a in pairs}
    assert lengths == {1, 2, 3}
    for _, answer in pairs:
        assert END not in answer[:-1]
        assert len(answer) == 3 or answer[-1] == END


def as_rows(inputs):
    """The two answers of each comparison, one after the other."""
    return {name: x.flatten(0, 1) for name, x in inputs.items()}


def test_a_reward_reads_the_last_token():
    """Padding changes nothing; what stands before does."""
    made = pf.RewardModel(model())
    with torch.no_grad():
        made.score.weight.copy_(draw(1, D))
    batch = pf.reward_batch(COMPARISONS, pad_id=4)
    got = made(**as_rows(batch.inputs))
    texts = [[3, 5, 7, 2, END], [3, 5, 7, 4, 6, END], [2, 9, 8, END],
             [2, END]]  # fmt: skip
    alone = [
        made(torch.tensor([t]), torch.tensor([len(t) - 1])) for t in texts
    ]
    close(got, torch.cat(alone), 1e-12)
    other = pf.reward_batch(COMPARISONS, pad_id=9)
    close(made(**as_rows(other.inputs)), got, 1e-12)
    changed = made(torch.tensor([[6, *texts[0][1:]]]), torch.tensor([4]))
    differ(changed, got[:1])


def test_a_reward_model_begins_at_ln_2_and_learns():
    made = pf.RewardModel(model())
    batch = pf.reward_batch(COMPARISONS, pad_id=END)
    first = pf.reward_model_loss(made, batch.inputs, batch.targets) / 2
    close(first, torch.tensor(2.0, dtype=torch.float64).log(), 1e-12)
    config = TrainConfig(steps=30, learning_rate=1e-2, warmup_steps=1)
    state = train(made, lambda step: [batch], config, progress=False,
                  loss=pf.reward_model_loss)  # fmt: skip
    close(torch.tensor(state.losses[0]), first.float(), 1e-5)
    assert state.losses[-1] < 0.05


def test_a_reference_has_no_dropout():
    """Also one in training mode, as it is when built; its mode stays."""
    noisy, quiet = model(dropout=0.5).train(), model()
    batch = pf.dpo_batch(COMPARISONS, noisy, END)
    right = pf.dpo_batch(COMPARISONS, quiet, END)
    close(batch.inputs["reference"], right.inputs["reference"], 1e-12)
    rows = as_rows(batch.inputs)
    gains = {"advantages": torch.ones(len(rows["ids"]))}
    asked = quiet, rows | gains, torch.arange(len(rows["ids"]))
    apart = pf.make_grpo_loss(noisy, beta=1.0)(*asked)
    close(apart, pf.make_grpo_loss(quiet, beta=1.0)(*asked), 1e-12)
    assert noisy.training
    # The control: in training mode its log-probabilities are others.
    found = pf.answer_log_probs(noisy, rows["ids"], rows["answers"])
    differ(found.sum(1), right.inputs["reference"].flatten())


def test_dpo_learns_what_is_preferred():
    """The margin grows; the other way round it falls."""
    margins = []
    for sign in (1, -1):
        made, first = model(), model()
        rows = [(p, *answers[::sign]) for p, *answers in COMPARISONS]
        batch = pf.dpo_batch(rows, first, END)
        loss = pf.make_dpo_loss(beta=0.5)
        config = TrainConfig(steps=30, learning_rate=1e-2, warmup_steps=1)
        state = train(made, lambda step, b=batch: [b], config,
                      progress=False, loss=loss)  # fmt: skip
        assert abs(state.losses[0] - 0.6931) < 1e-3
        asked = as_rows(pf.dpo_batch(COMPARISONS, first, END).inputs)
        own = pf.answer_log_probs(made, asked["ids"], asked["answers"])
        gap = own.sum(1) - asked["reference"]
        better, worse = gap.view(-1, 2).unbind(1)
        margins.append((better - worse).mean().item())
    assert margins[0] > 1
    assert margins[1] < -1


ONCE = pytest.mark.xdist_group("play")  # by one worker, which keeps it


@cache
def play(reward, beta=0.0, steps=40):
    """Train the small model to earn a reward; its mean in each step."""
    made, earned = model(torch.float32), []

    def counted(step, pairs):
        found = reward(step, pairs)
        earned.append(sum(found) / len(found))
        return found

    batches = pf.grpo_batches(
        made, lambda step: PROMPTS, counted, 16, END, 3, seed=1
    )
    config = TrainConfig(
        steps=steps,
        learning_rate=1e-2,
        warmup_steps=5,
        weight_decay=0.0,
        schedule="constant",
    )
    reference = model(torch.float32) if beta else None
    loss = pf.make_grpo_loss(reference, beta)
    train(made, batches, config, progress=False, loss=loss)
    return made, earned


def says_six(step, pairs):
    """1 for an answer that begins with token 6."""
    return [float(a[0] == 6) for _, a in pairs]


@ONCE
def test_a_reward_is_learned_and_a_shuffled_one_is_not():
    _, earned = play(says_six)
    assert earned[0] < 0.3 < 0.9 < sum(earned[-5:]) / 5

    def shuffled(step, pairs):
        found = says_six(step, pairs)
        order = torch.randperm(
            len(found), generator=torch.Generator().manual_seed(step)
        )
        return [found[i] for i in order]

    _, earned = play(shuffled)
    assert sum(earned[-5:]) / 5 < 0.5


@ONCE
def test_a_penalty_keeps_the_model_close():
    """KL from the start, over the first token of both prompts."""

    def far(made):
        first = model(torch.float32)
        total = 0.0
        for prompt in PROMPTS:
            p, q = (m(torch.tensor([prompt]))[0, -1].log_softmax(-1)
                    for m in (made, first))  # fmt: skip
            total += (p.exp() * (p - q)).sum().item()
        return total

    free, held = play(says_six)[0], play(says_six, beta=2.0)[0]
    assert far(held) < far(free) / 2


def test_batches_depend_on_the_step_alone():
    """Two calls give the same rows, also of groups without a difference."""
    made = model(torch.float32)

    def first_prompt_alone(step, pairs):
        return [float(p == PROMPTS[0] and a[0] < 5) for p, a in pairs]

    batches = pf.grpo_batches(
        made, lambda step: PROMPTS, first_prompt_alone, 8, END, 3
    )
    [one], [two] = batches(3), batches(3)
    assert torch.equal(one.inputs["ids"], two.inputs["ids"])
    assert len(one.targets) == 16
    first, second = one.inputs["advantages"].view(2, 8)
    close(first.sum(), torch.zeros(()), 1e-5)
    assert first.any()
    assert not second.any()


def test_a_verdict_is_a_reward():
    """True counts 1, False counts 0."""
    made = model(torch.float32)

    def verdicts(step, pairs):
        return [reward == 1 for reward in says_six(step, pairs)]

    ways = says_six, verdicts
    [one], [two] = (
        pf.grpo_batches(made, lambda step: PROMPTS, way, 16, END, 3)(0)
        for way in ways
    )
    assert one.inputs["advantages"].any()
    assert torch.equal(one.inputs["advantages"], two.inputs["advantages"])


def learned(runs):
    """Whether every seed went from at most 10 % right to at least 80 %."""
    curves = [[at["gave, exact"] for at in run["curve"]] for run in runs]
    return len(runs) >= 3 and all(c[0] <= 0.1 and c[-1] >= 0.8 for c in curves)


def test_the_recorded_runs_learned_from_their_rewards():
    """Three seeds with the exact reward; shuffled rewards as the control."""
    found = result("preferences")["rewards"]
    assert learned(found["exact"])
    assert not learned(found["exact"][:2])
    assert not any(learned([run] * 3) for run in found["shuffled"])
    for run in found["contains"]:  # earned, and not what was meant
        last = run["curve"][-1]
        assert last["gave, contains"] > 0.8 > 0.1 > last["gave, exact"]
