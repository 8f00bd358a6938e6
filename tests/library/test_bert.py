"""BERT from a folder: a small random one that `transformers` has written."""

import json

import pytest
import torch
from compare import close, shake
from references import edit_config, numbers
from transformers import BertConfig, BertModel

from coursekit.pretrained.bert import load_bert
from coursekit.saved_models import load_model, save_model

D, HEADS, V, MAX, DFF = 42, 3, 31, 17, 29


def write_bert(folder, **changes):
    config = BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=DFF,
        max_position_embeddings=MAX,
        layer_norm_eps=1e-3,
        **changes,
    )
    theirs = shake(BertModel(config)).eval()
    theirs.save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(V - 5)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf8")
    return theirs


def test_bert_from_a_folder(tmp_path):
    theirs = write_bert(tmp_path)
    model, tokenizer = load_bert(tmp_path)
    ids, real = numbers(2, 7), torch.ones(2, 7, dtype=torch.bool)
    real[1, 5:] = False
    with torch.no_grad():
        y = model(ids, real[:, None, None])
        z = theirs(ids, attention_mask=real.long()).last_hidden_state
    close(y[real], z[real], 1e-5)
    assert tokenizer.encode("w3 W4") == [8, 9]
    assert not model.training


def test_a_published_model_is_saved_as_ours(tmp_path):
    """Then it needs no loader any more."""
    write_bert(tmp_path)
    loaded = load_bert(tmp_path)
    save_model(tmp_path / "ours", *loaded)
    again = load_model(tmp_path / "ours")
    ids = numbers(2, 7)
    with torch.no_grad():
        assert torch.equal(again.model(ids), loaded.model(ids))
    assert again.tokenizer.tokens == loaded.tokenizer.tokens


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"model_type": "roberta"}, "got 'roberta'"),
        ({"hidden_act": "silu"}, "got 'silu'"),
        ({"num_hidden_layers": 3}, "no encoder.layer.2"),
        ({"hidden_size": 45}, "has shape"),
    ],
)
def test_a_folder_that_does_not_fit(tmp_path, changes, received):
    write_bert(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=received):
        load_bert(tmp_path)


def test_a_configuration_must_have_all_sizes(tmp_path):
    write_bert(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_bytes())
    del fields["hidden_size"]
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=r"all sizes .*hidden_size"):
        load_bert(tmp_path)


def test_fewer_blocks_than_there_are_make_a_smaller_model(tmp_path):
    write_bert(tmp_path)
    edit_config(tmp_path, num_hidden_layers=1)
    assert len(load_bert(tmp_path).model.blocks) == 1
