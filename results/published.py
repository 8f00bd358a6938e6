"""Outputs of three published models in this package's modules.

The models are no part of the package; `make models` fetches them.  The page
shows these numbers and texts, so it is the same with and without them.  How
near they are to an independent implementation is what the tests measure.
"""

import re
import subprocess
import sys
from dataclasses import replace

import torch
from torch.nn import functional as F  # noqa: N812

from coursekit.decoder import GPT
from coursekit.positions import SCHEMES
from coursekit.pretrained.pipelines import (
    align,
    chat,
    complete,
    sentence_vectors,
    transcribe,
)
from coursekit.pretrained.published import load_published
from coursekit.pretrained.speech import load_speech
from coursekit.saved_models import Loaded
from results.record import ROOT, options, record

SENTENCES = [
    "The animal was too tired to cross the street.",
    "An exhausted creature stayed on its side of the road.",
    "The street was too wide for the animal to cross.",
    "A mechanic was too tired to cross the street.",
    "She repairs bicycles in a small shop.",
    "In her little store, broken bikes are mended.",
]
SENTENCE = "The animal didn't cross the street because it was too tired."
STORY = SENTENCE + (
    " A reader who sees the word 'it' knows at once what was tired: not the "
    "street, which cannot be, but the animal. To a machine nothing of this is "
    "given. It has to look at the other words and decide how much each of "
    "them matters to the one it is reading now."
)
SHORT = "The capital of France is"
QUESTION = "What is the capital of France?"
SECOND = "Explain in one sentence why the sky is blue."
PARITY = {  # the tests that compare with the reference, and their numbers
    "test_minilm_has_the_reference_vectors": ["tokens", "sentences"],
    "test_smollm2_has_the_reference_logits": ["logits"],
    "test_whisper_has_the_reference_logits": [
        *("sound", "encoder", "logits", "all"),
    ],
}


def wrong_pairs(model: GPT) -> GPT:
    """The same weights; but RoPE turns i and i + half, not neighbors."""
    config = replace(model.config, position_layout="halves")
    with torch.device("meta"):
        wrong = GPT(config)
    wrong.load_state_dict(model.state_dict(), assign=True)
    wrong.positions = SCHEMES[config.positions](config)
    return wrong.eval()


def token_losses(loaded: Loaded, text: str) -> list[float]:
    """Nats of each token but the first."""
    ids = torch.tensor([loaded.tokenizer.encode(text)])
    with torch.inference_mode():
        logits = loaded.model(ids)[0, :-1]
    nats = F.cross_entropy(logits, ids[0, 1:], reduction="none")
    return [round(n, 3) for n in nats.tolist()]


def shared_words(a: str, b: str) -> float:
    """Share of the words of two sentences that are in both."""
    one, other = (set(re.findall(r"[a-z]+", s.lower())) for s in (a, b))
    return round(len(one & other) / len(one | other), 2)


def parity() -> dict[str, dict[str, float]]:
    """Largest differences from the reference, as the tests print them."""
    found = {}
    for test, names in PARITY.items():
        where = f"tests/library/test_pipelines.py::{test}"
        command = [sys.executable, "-m", "pytest", "-sq", where]
        told = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        gaps = re.findall(r"largest difference (\S+) at", told)
        model = test.split("_")[1]
        pairs = zip(names, map(float, gaps), strict=True)
        found[model] = dict(pairs)
    return found


def count(loaded: Loaded) -> int:
    """Number of parameters of a model."""
    return sum(p.numel() for p in loaded.model.parameters())


parser = options(__doc__)


def main() -> None:
    """Ask all three."""
    parser.parse_args()
    torch.set_num_threads(1)
    with record("published", [0]) as metrics:
        metrics["seed"] = "nothing here is drawn at random"
        minilm = load_published("minilm")
        vectors = sentence_vectors(*minilm, SENTENCES)
        metrics["minilm"] = {
            "parameters": count(minilm),
            "sentences": SENTENCES,
            "alike": [
                [round(x, 2) for x in row]
                for row in (vectors @ vectors.T).tolist()
            ],
            "shared_words": [
                [shared_words(a, b) for b in SENTENCES] for a in SENTENCES
            ],
        }
        print(metrics["minilm"], flush=True)

        whisper = load_published("whisper")
        sound = load_speech()
        heard = transcribe(*whisper, sound)
        at = align(*whisper, sound, heard)
        backwards = align(*whisper, sound.flip(0), heard)
        metrics["whisper"] = {
            "parameters": count(whisper),
            "seconds": round(len(sound) / 16_000, 2),
            "text": heard,
            "pieces": at.pieces,
            "weights": [
                [round(x, 2) for x in row] for row in at.weights.tolist()
            ],
            "places": at.weights.argmax(-1).tolist(),
            "places_backwards": backwards.weights.argmax(-1).tolist(),
        }
        print(heard, metrics["whisper"]["places"], flush=True)
        del whisper, minilm

        smol = load_published("smollm2")
        wrong = Loaded(wrong_pairs(smol.model), smol.tokenizer)
        config = smol.model.config.to_dict()
        metrics["smollm2"] = {"parameters": count(smol), "config": config}
        for name, loaded in (("right", smol), ("wrong", wrong)):
            nats = token_losses(loaded, STORY)
            metrics["smollm2"][name] = {
                "short": complete(*loaded, SHORT, 3),
                "chat": chat(*loaded, QUESTION, 30),
                "second": chat(*loaded, SECOND, 40),
                "goes_on": complete(*loaded, STORY, 40),
                "token_losses": nats,
                "loss": round(sum(nats) / len(nats), 2),
            }
            print(name, metrics["smollm2"][name], flush=True)
        metrics["smollm2"]["pieces"] = [
            smol.tokenizer.decode([i]) for i in smol.tokenizer.encode(STORY)
        ]
        metrics["story"] = STORY
        metrics["asked"] = {
            "short": SHORT,
            "question": QUESTION,
            "second": SECOND,
        }
        del smol, wrong, loaded
        metrics["parity"] = parity()
        print(metrics["parity"], flush=True)


if __name__ == "__main__":
    main()
