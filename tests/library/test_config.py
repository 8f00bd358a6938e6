"""Configurations: each rule is enforced, and says what it received."""

import dataclasses
import json
import re

import pytest

from coursekit.config import (
    Config,
    EncoderConfig,
    GPTConfig,
    StackConfig,
    TransformerConfig,
    setting,
)

CHOICES = {
    f.name: StackConfig.limits(f.name)["choices"]
    for f in dataclasses.fields(StackConfig)
    if "choices" in StackConfig.limits(f.name)
}
KINDS = pytest.mark.parametrize(
    "kind", [StackConfig, GPTConfig, EncoderConfig, TransformerConfig]
)

BROKEN = [
    ({"vocab_size": 0}, "vocab_size", "got 0"),
    ({"max_len": 0}, "max_len", "got 0"),
    ({"max_len": -3}, "max_len", "got -3"),
    ({"d_model": 0}, "d_model", "got 0"),
    ({"n_heads": 0}, "n_heads", "got 0"),
    ({"n_kv_heads": 0}, "n_kv_heads", "got 0"),
    ({"d_head": 0}, "d_head", "got 0"),
    ({"d_value": -1}, "d_value", "got -1"),
    ({"d_ff": -1}, "d_ff", "got -1"),
    ({"positions": "relative"}, "positions", "got 'relative'"),
    ({"position_layout": "half"}, "position_layout", "got 'half'"),
    ({"norm": "batchnorm"}, "norm", "got 'batchnorm'"),
    ({"activation": "tanh"}, "activation", "got 'tanh'"),
    ({"d_model": 13, "n_heads": 3}, "divisible", "got d_model=13, n_heads=3"),
    (
        {"d_model": 20, "n_heads": 5, "n_kv_heads": 3},
        "multiple of n_kv_heads",
        "got n_heads=5, n_kv_heads=3",
    ),
    (
        {"d_model": 21, "n_heads": 3, "positions": "rope"},
        "even",
        "got d_head=7",
    ),
    (
        {"d_model": 21, "n_heads": 3, "positions": "sinusoidal"},
        "even",
        "got d_model=21",
    ),
    ({"dropout": 1.0}, "dropout", "got 1.0"),
    ({"dropout": -0.1}, "dropout", "got -0.1"),
    ({"dropout": float("nan")}, "dropout", "got nan"),
    ({"vocab_size": True}, "vocab_size must be a whole", "got True"),
    ({"n_kv_heads": True}, "n_kv_heads must be a whole", "got True"),
]


@KINDS
@pytest.mark.parametrize(("fields", "rule", "received"), BROKEN)
def test_each_rule(kind, fields, rule, received):
    """The rule, the values, and after them a remedy."""
    with pytest.raises(ValueError, match=re.escape(received)) as error:
        kind(**({"vocab_size": 97} | fields))
    before, after = str(error.value).split(received, 1)
    assert rule in before
    assert len(after.strip(". ")) > 10, "no remedy"


@pytest.mark.parametrize(
    ("kind", "fields", "received"),
    [
        (GPTConfig, {"n_layers": -1}, "got -1"),
        (EncoderConfig, {"n_layers": -2}, "got -2"),
        (TransformerConfig, {"d_ff": 0}, "got d_ff=0"),
        (TransformerConfig, {"n_encoder_layers": 0}, "n_encoder.* got 0"),
        (TransformerConfig, {"n_decoder_layers": 0}, "n_decoder.* got 0"),
        (TransformerConfig, {"pad_id": 97}, "got pad_id=97, vocab_size=97"),
        (TransformerConfig, {"pad_id": -1}, "pad_id .* got -1"),
    ],
)
def test_rules_of_one_kind(kind, fields, received):
    with pytest.raises(ValueError, match=received):
        kind(vocab_size=97, **fields)


@KINDS
def test_defaults_are_valid_and_documented(kind):
    config = kind(vocab_size=97)
    assert config.vocab_size == 97
    assert config.d_model % config.n_heads == 0
    for name, choices in CHOICES.items():
        assert getattr(config, name) in choices
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 1


@KINDS
def test_round_trip(kind):
    """Through JSON and back: equal, and every field is there."""
    config = kind(vocab_size=97, d_model=22, n_heads=11, norm="rmsnorm")
    text = json.dumps(config.to_dict())
    assert kind.from_dict(json.loads(text)) == config
    assert set(config.to_dict()) == {
        f.name for f in dataclasses.fields(config)
    }
    assert kind.from_dict({"vocab_size": 97}) != config


def test_from_dict_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="n_layer'"):
        GPTConfig.from_dict({"vocab_size": 97, "n_layer": 3})
    with pytest.raises(ValueError, match="vocab_size"):
        GPTConfig.from_dict({"d_model": 8})
    with pytest.raises(ValueError, match="got d_model=13, n_heads=4"):
        GPTConfig.from_dict({"vocab_size": 97, "d_model": 13})


def test_derived_sizes():
    config = GPTConfig(vocab_size=97, d_model=30, n_heads=6)
    assert (config.kv_heads, config.head_size, config.ff_size) == (6, 5, 120)
    config = GPTConfig(
        vocab_size=97, d_model=30, n_heads=6, n_kv_heads=2, d_head=7, d_ff=0
    )
    assert (config.kv_heads, config.head_size, config.ff_size) == (2, 7, 0)
    # With d_head the width need not be divisible.
    assert GPTConfig(vocab_size=97, d_model=13, n_heads=3, d_head=5)


def test_weight_std_is_gpt2s_at_its_width():
    """0.5/√D: at D = 768 it is 0.018, near the 0.02 that GPT-2 has."""
    assert GPTConfig(vocab_size=97, d_model=768).weight_std == pytest.approx(
        0.018, abs=1e-4
    )
    assert GPTConfig(vocab_size=97, init_std=0.3).weight_std == 0.3


def test_paper_base():
    """Table 3, first row."""
    base = TransformerConfig.paper_base()
    sizes = (base.d_model, base.n_heads, base.head_size, base.ff_size)
    assert sizes == (512, 8, 64, 2048)
    assert (base.n_encoder_layers, base.n_decoder_layers) == (6, 6)
    assert not base.norm_first
    assert not base.final_norm
    assert base.tie_embeddings
    assert base.scale_embedding
    assert base.dropout == 0.1
    assert base.activation == "relu"
    big = TransformerConfig.paper_base(d_model=1024, n_heads=16)
    assert (big.d_model, big.head_size) == (1024, 64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Game(Config):
    n_players: int = 2
    steps: int = 1
    share: float = setting(0.5, below=1)
    level: int = setting(0, least=0, most=7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongGame(Game):
    level: int = 3


@pytest.mark.parametrize("kind", [Game, LongGame])
def test_a_fields_limits_are_what_its_definition_says(kind):
    """Not what its name reminds of: n_players has no layers."""
    assert kind(n_players=20_000).n_players == 20_000
    for field, value in [("steps", 0), ("share", 1.0), ("level", 8)]:
        with pytest.raises(ValueError, match=f"{field} must"):
            kind(**{field: value})
    assert kind(level=0).level == 0
