# What `from coursekit import X` finds, and where: the only list. Type checkers
# and editors read it as it stands; __init__.py reads it to load each name when
# it is first asked for.
from typing import Any

from coursekit.attention import (
    attend as attend,
    attention_weights as attention_weights,
    fast_attend as fast_attend,
)
from coursekit.block import Block as Block
from coursekit.cache import LayerCache as LayerCache
from coursekit.steppers import (
    GPTStepper as GPTStepper,
    Seq2SeqStepper as Seq2SeqStepper,
)
from coursekit.config import (
    EncoderConfig as EncoderConfig,
    GPTConfig as GPTConfig,
    SpeechConfig as SpeechConfig,
    TrainConfig as TrainConfig,
    TransformerConfig as TransformerConfig,
    VisionConfig as VisionConfig,
)
from coursekit.data import (
    Batch as Batch,
    load_pairs as load_pairs,
    load_text as load_text,
    random_windows as random_windows,
    sequential_windows as sequential_windows,
    train_val_split as train_val_split,
)
from coursekit.decoder import GPT as GPT
from coursekit.embedding import TokenEmbedding as TokenEmbedding
from coursekit.encoder import Encoder as Encoder
from coursekit.experts import Experts as Experts
from coursekit.feedforward import FeedForward as FeedForward, SwiGLU as SwiGLU
from coursekit.generation import (
    beam_search as beam_search,
    generate as generate,
)
from coursekit.loss import (
    cross_entropy as cross_entropy,
    perplexity as perplexity,
)
from coursekit.masks import (
    causal_mask as causal_mask,
    combine_masks as combine_masks,
    padding_mask as padding_mask,
    window_mask as window_mask,
)
from coursekit.saved_models import (
    Loaded as Loaded,
    find_model as find_model,
    load as load,
    load_model as load_model,
    save_model as save_model,
    shipped as shipped,
)
from coursekit.multihead import (
    MultiHeadAttention as MultiHeadAttention,
    merge_heads as merge_heads,
    split_heads as split_heads,
)
from coursekit.norm import LayerNorm as LayerNorm, RMSNorm as RMSNorm
from coursekit.optim import (
    cosine_schedule as cosine_schedule,
    make_optimizer as make_optimizer,
    noam_schedule as noam_schedule,
    parameter_groups as parameter_groups,
)
from coursekit.packed import pack as pack
from coursekit.positions import (
    rotate_pairs as rotate_pairs,
    sinusoidal as sinusoidal,
)
from coursekit.pretrained.formats import MissingModelError as MissingModelError
from coursekit.pretrained.gpt2 import load_gpt2 as load_gpt2
from coursekit.pretrained.pipelines import (
    align as align,
    chat as chat,
    complete as complete,
    sentence_vectors as sentence_vectors,
    transcribe as transcribe,
)
from coursekit.pretrained.published import load_published as load_published
from coursekit.pretrained.speech import (
    load_speech as load_speech,
    log_mel as log_mel,
    read_wav as read_wav,
)
from coursekit.pretrained.whisper import SpeechTransformer as SpeechTransformer
from coursekit.pretrained.wordpiece import (
    WordPieceTokenizer as WordPieceTokenizer,
)
from coursekit.quantize import quantized_copy as quantized_copy
from coursekit.sampling import greedy as greedy, sampler as sampler
from coursekit.seq2seq import Transformer as Transformer
from coursekit.speculative import (
    CachedReader as CachedReader,
    speculate as speculate,
)
from coursekit.tokenizer import (
    BPETokenizer as BPETokenizer,
    CharTokenizer as CharTokenizer,
)
from coursekit.training import evaluate as evaluate, train as train
from coursekit.translate import Translator as Translator
from coursekit.tuning import (
    LoRA as LoRA,
    add_lora as add_lora,
    load_tuned as load_tuned,
    merge_lora as merge_lora,
)
from coursekit.vision import (
    ViT as ViT,
    load_fashion as load_fashion,
    patchify as patchify,
    shuffle_patches as shuffle_patches,
    unpatchify as unpatchify,
)
from coursekit.weights import round_weights as round_weights

def __getattr__(name: str) -> Any: ...
