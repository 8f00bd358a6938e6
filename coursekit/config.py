"""Every choice that makes one transformer differ from another.

The configurations are frozen dataclasses.  The string under each field is its
help, here and on the command line.  A configuration that cannot work is
refused when it is made, so no model has to check it again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any, TypeVar, get_args

from coursekit.checks import check_choice, check_heads, require
from coursekit.feedforward import NETWORKS
from coursekit.norm import NORMS
from coursekit.optim import OPTIMIZERS, SCHEDULES
from coursekit.positions import LAYOUTS, SCHEMES

C = TypeVar("C", bound="Config")

PRECISIONS = ("float32", "bfloat16", "auto")
MOST_LAYERS = 10**4
"""More would be built until no memory is left."""

Rules = Iterator[tuple[bool, str, str, str]]
"""Truth of a rule, its text, what was received, and the remedy."""


def setting(default: Any, **limits: Any) -> Any:
    """A field of a configuration whose values have limits.

    They hold in subclasses too, also where these have another default.

    Args:
        default: the field's default.
        limits: ``choices``, the names that it may be; ``least`` and ``most``
            of a whole number, which are 1 and 2³¹ otherwise; what a number
            must be ``below``.
    """
    return field(default=default, metadata=limits)


def _check_field(
    name: str, kind: Any, value: Any, limits: Mapping[str, Any]
) -> None:
    """Refuse a value that a field of this type and limits may not have.

    Raises:
        ValueError: with the rule for the field.
    """
    if "choices" in limits:
        return check_choice(name, value, limits["choices"])
    remedy = "Give another value, or leave it out for the default."
    kinds, is_bool = {kind, *get_args(kind)}, isinstance(value, bool)
    if bool in kinds:
        rule, holds = "be True or False", is_bool
    elif int in kinds:
        least, most = limits.get("least", 1), limits.get("most", 2**31)
        rule = f"be a whole number of at most {most} and at least {least}"
        holds = type(value) is int and least <= value <= most
        remedy = "Give a whole number."
    elif float in kinds:
        end = limits.get("below", inf)
        rule = "be a number of at least 0"
        rule = rule if end == inf else f"lie in [0, {end})"
        is_number = isinstance(value, int | float) and not is_bool
        holds = is_number and 0 <= value < end
    else:
        return None
    require(holds, f"{name} must {rule}", repr(value), remedy)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of all configurations: checked fields, to JSON and back."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                limits = self.limits(one.name)
                _check_field(one.name, one.type, value, limits)
        for rule in self.rules():
            require(*rule)

    @classmethod
    def limits(cls, name: str) -> Mapping[str, Any]:
        """The limits of a field, as :func:`setting` gave them."""
        for base in cls.__mro__:
            one = getattr(base, "__dataclass_fields__", {}).get(name)
            if one is not None and one.metadata:
                return one.metadata
        return {}

    def rules(self) -> Rules:
        """Rules between fields: what holds, the rule, what came, a remedy."""
        yield from ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], fields: dict[str, Any]) -> C:
        """Make a configuration from :meth:`to_dict`'s dictionary.

        Raises:
            ValueError: if a field is unknown or missing.
        """
        try:
            return cls(**fields)
        except TypeError as error:
            raise ValueError(
                f"a {cls.__name__} needs the fields that it defines: got "
                f"{sorted(fields)} ({error}). Write it with to_dict()."
            ) from error


@dataclass(frozen=True, kw_only=True)
class StackConfig(Config):
    """Fields that GPT, encoder and encoder-decoder share.

    Raises:
        ValueError: if the values do not fit together.

    Chapter: 9, the decoder.
    """

    vocab_size: int
    """Number of tokens the model knows, V."""
    max_len: int = 256
    """Longest sequence the model accepts, in tokens."""
    d_model: int = 128
    """Width of the residual stream, D."""
    n_heads: int = 4
    """Number of query heads, H."""
    n_kv_heads: int | None = None
    """Number of key/value heads, G; H must be a multiple. [default: H]"""
    d_head: int | None = None
    """Size of a head's queries and keys, Dh. [default: D / H]"""
    d_value: int | None = None
    """Size of a head's values. [default: Dh]"""
    d_ff: int | None = setting(None, least=0)
    """Inner width of the feed-forward network; 0: none. [default: 4 D]"""
    activation: str = setting("gelu", choices=NETWORKS)
    """Nonlinearity of the feed-forward network; swiglu is gated."""
    norm: str = setting("layernorm", choices=NORMS)
    """Normalization of each sub-layer."""
    norm_first: bool = True
    """Normalize before each sub-layer (pre-norm), not after it (post-norm)."""
    final_norm: bool = True
    """Normalize once more after the last block."""
    norm_eps: float = 1e-5
    """Added to the variance, so that a constant row divides by no zero."""
    residual: bool = True
    """Add each sub-layer's input to its output."""
    bias: bool = True
    """Give linear layers and layer norms a bias."""
    attention_bias: bool | None = None
    """Give the attention projections a bias. [default: as `bias`]"""
    dropout: float = setting(0.0, below=1)
    """Fraction of activations zeroed in training."""
    positions: str = setting("learned", choices=SCHEMES)
    """How order enters."""
    position_layout: str = setting("interleaved", choices=LAYOUTS)
    """How sine and cosine (or RoPE's pairs) lie."""
    rope_base: float = 10000.0
    """Longest wavelength of RoPE and of the sinusoids, over 2π."""
    scale_embedding: bool = False
    """Multiply token embeddings by √D, as the paper does."""
    tie_embeddings: bool = True
    """Use the embedding matrix as the output projection too."""
    init_std: float | None = None
    """Deviation of initial weights; of positions 0.02. [default: 0.5 / √D]"""

    def rules(self) -> Rules:
        """Rules between sizes, heads and positions."""
        check_heads(self.d_model, self.n_heads, self.kv_heads, self.d_head)
        for scheme, name, size in (
            ("rope", "d_head", self.head_size),
            ("sinusoidal", "d_model", self.d_model),
        ):
            yield (
                self.positions != scheme or size % 2 == 0,
                f"{scheme} positions act on pairs, so {name} must be even",
                f"{name}={size}",
                f"Choose an even {name}.",
            )
        yield (
            0.0 < self.rope_base < inf,
            "rope_base must be a finite number above 0",
            str(self.rope_base),
            "10000 is the paper's.",
        )

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads, G."""
        return self.n_kv_heads or self.n_heads

    @property
    def head_size(self) -> int:
        """Size of a head's queries and keys, Dh."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def ff_size(self) -> int:
        """Inner width of the feed-forward network; 0 if there is none."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def weight_std(self) -> float:
        """Standard deviation of initial weights; GPT-2's 0.02 at D = 768."""
        if self.init_std is None:
            return 0.5 / self.d_model**0.5
        return self.init_std


@dataclass(frozen=True, kw_only=True)
class GPTConfig(StackConfig):
    """A decoder-only model.  The defaults are GPT-2's choices, smaller."""

    n_layers: int = setting(4, least=0, most=MOST_LAYERS)
    """Number of blocks, L."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """An encoder.  The defaults are BERT's choices, smaller."""

    n_layers: int = setting(4, least=0, most=MOST_LAYERS)
    """Number of blocks, L."""
    norm_first: bool = False
    final_norm: bool = False
    embedding_norm: bool = False
    """Normalize the embeddings before the first block, as BERT does."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """The paper's encoder-decoder; the defaults are its choices, smaller."""

    n_encoder_layers: int = setting(2, most=MOST_LAYERS)
    """Number of encoder blocks."""
    n_decoder_layers: int = setting(2, most=MOST_LAYERS)
    """Number of decoder blocks."""
    pad_id: int = setting(0, least=0)
    """Token that fills up short sequences; it is never attended to."""
    activation: str = "relu"
    norm_first: bool = False
    final_norm: bool = False
    positions: str = "sinusoidal"
    scale_embedding: bool = True
    dropout: float = 0.1

    def rules(self) -> Rules:
        """Further rules of an encoder-decoder."""
        yield from super().rules()
        yield (
            self.ff_size > 0,
            "an encoder-decoder's blocks have a feed-forward network",
            f"d_ff={self.d_ff}",
            "Give a positive d_ff.",
        )
        yield (
            self.pad_id < self.vocab_size,
            "pad_id must be one of the tokens",
            f"pad_id={self.pad_id}, vocab_size={self.vocab_size}",
            "Choose one in 0..vocab_size - 1.",
        )

    @classmethod
    def paper_base(cls: type[C], vocab_size: int = 37000, **changes: Any) -> C:
        """The paper's base model: d 512, 8 heads, 6 + 6 layers.

        Args:
            vocab_size: of the joint vocabulary, in tokens.
            changes: any other field, as in the rows of Table 3.

        Returns:
            The configuration.

        Differs from the paper: in the count of parameters, which the paper
            prints with a vocabulary that it does not state.
        Chapter: 14, encoder and decoder together.
        Source: vaswani2017attention, Table 3.
        Test: test_paper_table3.py::test_base_is_63_million
        """
        base = {
            "vocab_size": vocab_size,
            "d_model": 512,
            "n_heads": 8,
            "d_ff": 2048,
            "n_encoder_layers": 6,
            "n_decoder_layers": 6,
            "attention_bias": False,
            "max_len": 512,
        }
        return cls(**(base | changes))


@dataclass(frozen=True, kw_only=True)
class SpeechConfig(TransformerConfig):
    """An encoder-decoder that hears.  The defaults are Whisper's choices.

    Raises:
        ValueError: if the values do not fit together.

    Chapter: 15, modern.
    Source: radford2023robust, section 2.2.
    """

    n_mels: int = 80
    """Frequency bands of the sound that the encoder reads."""
    max_frames: int = 1500
    """Longest sound the encoder accepts, in steps of two columns."""
    activation: str = "gelu"
    norm_first: bool = True
    final_norm: bool = True
    positions: str = "learned"
    scale_embedding: bool = False
    dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class VisionConfig(EncoderConfig):
    """An encoder that sees.  The defaults are ViT's choices, smaller.

    ``max_len`` follows from the image: the class token and the patches.

    Raises:
        ValueError: if the values do not fit together.

    Chapter: 17, vision.
    Source: dosovitskiy2021image, section 3.1.
    """

    vocab_size: int = 1
    """Number of tokens that are no patches, of which the first is read."""
    image_size: int = 28
    """Height and width of an image, in pixels."""
    patch_size: int = 4
    """Height and width of a patch, in pixels."""
    n_channels: int = 1
    """Numbers of a pixel: 1 for gray, 3 for color."""
    n_classes: int = 10
    """Kinds of images that are told apart."""
    norm_first: bool = True
    final_norm: bool = True
    positions: str = "learned"
    """How places enter: learned, sinusoidal (in two dimensions), or none."""

    def rules(self) -> Rules:
        """Further rules of a model of images."""
        yield from super().rules()
        yield (
            self.image_size % self.patch_size == 0,
            "image_size must be a multiple of patch_size",
            f"image_size={self.image_size}, patch_size={self.patch_size}",
            "Choose another patch, or scale the images.",
        )
        schemes = ("learned", "sinusoidal", "none")  # in two dimensions
        check_choice("an image's positions", self.positions, schemes)
        yield (
            self.positions != "sinusoidal" or self.d_model % 4 == 0,
            "sinusoids of two dimensions need d_model to be a multiple of 4",
            f"d_model={self.d_model}",
            "Choose a multiple of 4.",
        )

    @property
    def grid(self) -> int:
        """Patches in a row, and rows of patches."""
        return self.image_size // self.patch_size


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """Settings of training, the same for all models.

    Raises:
        ValueError: if a value makes no sense.

    Chapter: 11, training.
    """

    steps: int = setting(2000, least=0)
    """Number of updates of the weights."""
    batch_size: int = 32
    """Sequences in a micro-batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches whose gradients are added up for one update."""
    context: int = 64
    """Tokens in a training window."""
    optimizer: str = setting("adamw", choices=OPTIMIZERS)
    """Optimizer that applies the gradient."""
    learning_rate: float = 1e-3
    """Highest learning rate; the schedule rises to it, then falls."""
    schedule: str = setting("cosine", choices=SCHEDULES)
    """Learning rate after the warm-up."""
    warmup_steps: int = setting(100, least=0)
    """Updates over which the learning rate rises from 0 to its peak."""
    min_lr_ratio: float = 0.1
    """Final rate of cosine, as a fraction of the peak."""
    weight_decay: float = 0.1
    """Fraction of a matrix that each update removes, times learning rate."""
    beta1: float = setting(0.9, below=1)
    """Memory of AdamW's mean gradient."""
    beta2: float = setting(0.99, below=1)
    """Memory of AdamW's mean square; small batches want a longer one."""
    eps: float = 1e-8
    """Added to the root of AdamW's mean square, to divide by no zero."""
    max_grad_norm: float = 1.0
    """Longest gradient, all weights together; 0 does not clip."""
    label_smoothing: float = setting(0.0, below=1)
    """Fraction of the target's probability spread over all tokens."""
    precision: str = setting("float32", choices=PRECISIONS)
    """Matrix products in float32, bfloat16, or auto (what is fast here)."""
    compile: bool = False
    """Compile the model first, with torch.compile."""
    loss_chunk_size: int = setting(0, least=0)
    """Positions whose logits exist at a time, to save memory; 0: all."""
    eval_every: int = 250
    """Updates between two evaluations on the whole validation split."""
    checkpoint_every: int = 250
    """Updates between two checkpoints."""
    seed: int = setting(0, least=0, most=2**63 - 1)
    """Fixes initial weights, batches and dropout."""

    def rules(self) -> Rules:
        """Rules between fields: what holds, the rule, what came, a remedy."""
        yield (
            self.min_lr_ratio <= 1,
            "min_lr_ratio is at most the peak, 1",
            str(self.min_lr_ratio),
            "Try 0.1.",
        )
        yield (
            not (self.compile and self.loss_chunk_size),
            "a compiled model has all its logits at once",
            f"compile=True, loss_chunk_size={self.loss_chunk_size}",
            "Leave one of the two out.",
        )
