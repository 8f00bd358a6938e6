"""Published files, byte by byte; and what is said of damaged ones."""

import sys

import numpy as np
import pytest
from references import write_model_bin
from tokenizers.pre_tokenizers import ByteLevel

from coursekit.pretrained.formats import (
    MissingModelError,
    from_printable,
    read_ct2,
    read_gguf,
)


def test_a_model_bin_is_read_byte_by_byte(tmp_path):
    path = tmp_path / "model.bin"
    weights = {
        "a/weight": np.arange(6, dtype="float16").reshape(2, 3),
        "b": np.array(-7, dtype="int16"),
        "c/d": np.array([1.5], dtype="float32"),
    }
    write_model_bin(path, weights, [("again", "c/d")])
    found = read_ct2(path)
    assert set(found) == {"a/weight", "b", "c/d", "again"}
    for name, array in weights.items():
        assert found[name].numpy().dtype == array.dtype
        assert np.array_equal(found[name].numpy(), array)
    assert found["again"].tolist() == [1.5]
    whole = path.read_bytes()
    for n in range(0, len(whole), 3):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="whole CTranslate2 file"):
            read_ct2(path)
    write_model_bin(path, weights, version=5)
    with pytest.raises(ValueError, match="only version 6"):
        read_ct2(path)


def test_without_gguf_the_message_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingModelError, match=r"pip install gguf==0\.19\.0"):
        read_gguf(tmp_path / "model.gguf")


def test_printable_letters_are_bytes():
    """Known letters; all 256 bytes once; as another library shows them."""
    assert from_printable("Ġthe") == b" the"
    assert from_printable("Ċ") == b"\n"
    assert from_printable("ÃŃ") == "í".encode()
    shown = ByteLevel.alphabet()
    assert len(shown) == 256
    assert {from_printable(letter)[0] for letter in shown} == {*range(256)}
    with pytest.raises(
        ValueError, match="stand for a byte: got 'あ' in 'aあ'"
    ):
        from_printable("aあ")
