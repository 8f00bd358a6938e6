"""The writer of stories: its gates hold, and fail where they should."""

import json
import re

import pytest
import torch

import coursekit
from coursekit import minimal
from coursekit.interpret import watch
from coursekit.weights import own_weights
from coursekit_classroom import lesson
from coursekit_classroom.glue import result
from results import stories, story_gates, story_grammar
from results.minimal import to_minimal

EXAMPLES = json.loads((stories.FOLDER / "examples.json").read_text("utf8"))
TOLD = list(story_grammar.stories(500, seed=1))


@pytest.fixture(scope="module")
def loaded():
    return coursekit.load("stories")


def gate_of(name, tokenizer):
    """The exam on held-out pairs, and whether a token must be first."""
    asked = story_gates.exam(story_gates.questions(name), tokenizer)
    return asked, story_gates.GATES[name].first


def shipped_gates():
    """The gates of the seed that is shipped, as they were measured."""
    found = result("stories")
    [gates] = [
        run["gates"]
        for run in found["runs"]
        if run["seed"] == found["shipped"]
    ]
    return gates


# -- the stories -------------------------------------------------------------
def test_no_story_has_a_pair_that_is_held_out():
    assert not any(map(story_grammar.has_held_out, TOLD))
    for gate in story_gates.GATES.values():
        pairs = list(gate.pairs())
        held = [pair for pair in pairs if story_grammar.held_out(*pair)]
        assert story_gates.PAIRS <= len(held) <= len(pairs) / 4
    prompt = story_gates.questions("cause")[0].prompt
    assert story_grammar.has_held_out(prompt), "the control"


def test_every_word_of_the_stories_is_one_token(loaded):
    """And the file's tokenizer would cut them at the same places."""
    for story in TOLD:
        words = re.findall(r" ?\w+|'t|[^\w\s]", story)
        ids = loaded.tokenizer.encode(story)
        assert [loaded.tokenizer.decode([i]) for i in ids] == words
        if "'" not in story:
            assert words == minimal.WORD.findall(story)
    assert len(loaded.tokenizer.encode("A platypus")) > 2, "the control"


# -- the model is the file's -------------------------------------------------
def test_the_model_is_that_of_the_file(loaded):
    """The same logits from the same weights, in float32 and in float64."""
    ids = torch.tensor([loaded.tokenizer.encode(EXAMPLES["walk"]["prompt"])])
    model = to_minimal(loaded.model)
    with torch.no_grad():
        assert (model(ids) - loaded.model(ids)).abs().max() < 1e-4
        library = stories.make_model(loaded.tokenizer.vocab_size).double()
        library.load_state_dict(loaded.model.state_dict())
        model.double()
        assert (model(ids) - library(ids)).abs().max() < 1e-10


@pytest.mark.parametrize(
    "edit",
    [
        ("gelu(self.hidden(x))", "relu(self.hidden(x))"),
        (" + self.positions(torch.arange(start, end))", ""),
        ("x = x - x.mean(-1, keepdim=True)", "x = x"),
    ],
    ids=lambda edit: edit[0].strip()[:20],
)
def test_an_edited_file_is_another_model(loaded, edit):
    ids = torch.tensor([loaded.tokenizer.encode(EXAMPLES["walk"]["prompt"])])
    right = to_minimal(loaded.model)
    with_edit = lesson.load(12, [edit])
    config = loaded.model.config
    sizes = (config.vocab_size, config.max_len, config.d_model)
    edited = with_edit.GPT(*sizes, config.n_heads, config.n_layers)
    edited.load_state_dict(right.state_dict())
    with torch.no_grad():
        assert (edited(ids) - right(ids)).abs().max() > 1e-2


# -- the gates ---------------------------------------------------------------
@pytest.mark.parametrize("name", story_gates.MUST_HOLD)
def test_a_gate_holds_and_needs_its_heads(loaded, name):
    """Nearly all right; near chance without them; right without others."""
    asked, first = gate_of(name, loaded.tokenizer)
    heads = story_gates.needed(shipped_gates()[name])
    assert 1 <= len(heads) <= story_gates.MOST_HEADS
    model = loaded.model
    assert story_gates.score(model, asked, first) >= story_gates.LEAST
    silent = story_gates.score(model, asked, first, heads)
    assert silent <= story_gates.NEAR_CHANCE
    kept = story_gates.without_others(model, asked, first, heads, n_sets=4)
    assert kept >= story_gates.LEAST_WITHOUT_OTHERS


@pytest.mark.parametrize("name", story_gates.MUST_HOLD)
def test_shuffled_weights_fail_the_gates(loaded, name):
    model = stories.make_model(loaded.tokenizer.vocab_size)
    model.load_state_dict(loaded.model.state_dict())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in own_weights(model).values():
            order = torch.randperm(weight.numel(), generator=generator)
            weight.copy_(weight.flatten()[order].view_as(weight))
    asked, first = gate_of(name, loaded.tokenizer)
    assert story_gates.score(model, asked, first) <= story_gates.NEAR_CHANCE


def test_a_name_that_was_not_said_is_not_known(loaded):
    asked = story_gates.exam(story_gates.unmentioned(), loaded.tokenizer)
    assert story_gates.score(loaded.model, asked, first=True) <= 0.05


# -- what figures show -------------------------------------------------------
def shown():
    """Each prompt that figures show, as it is and with a token swapped."""
    tokenizer = coursekit.load("stories").tokenizer
    for chip in EXAMPLES["chips"]:
        ids = tokenizer.encode(chip["prompt"])
        for word, answer in zip(chip["words"], chip["answers"], strict=True):
            [ids[chip["place"]]] = tokenizer.encode(" " + word)
            yield chip["head"], tokenizer.decode(ids), answer


@pytest.mark.parametrize(("head", "prompt", "answer"), list(shown()))
def test_the_examples_are_true(loaded, head, prompt, answer):
    """The answer is the most probable token, and its head looks at it."""
    assert story_grammar.has_held_out(prompt)
    [right] = loaded.tokenizer.encode(" " + answer)
    ids = torch.tensor([loaded.tokenizer.encode(prompt)])
    seen = watch(loaded.model, ids)
    p = seen.output[0, -1].softmax(-1)
    assert p.argmax() == right
    block, number = head
    looked_at = int(seen.weights[block, 0, number, -1].argmax())
    token = loaded.tokenizer.decode([ids[0, looked_at].item()])
    assert token.strip() == answer
