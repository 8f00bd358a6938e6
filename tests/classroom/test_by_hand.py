"""The example of chapters 4 to 9 gives what was worked out on paper."""

import math

import pytest
import torch
from torch import nn

from coursekit.minimal import attention, causal_mask
from coursekit_classroom import by_hand as h
from coursekit_classroom.by_hand import W_K, W_Q, W_V, WORDS, X


def test_queries_keys_and_values_are_small_integers():
    assert (X @ W_Q).tolist() == [[-1, 0], [3, 2], [1, 2]]
    assert (X @ W_K).tolist() == [[0, -1], [0, 1], [2, -1]]
    assert (X @ W_V).tolist() == [[1, 0], [3, 2], [1, 2]]
    assert len(WORDS) == len(X) == 3


def test_weights_of_the_last_token():
    """e^(−√2), e^(√2) and e^0, over their sum; then the mix."""
    products = (X @ W_Q)[2] @ (X @ W_K).T
    assert products.tolist() == [-2, 2, 0]
    parts = [math.exp(-math.sqrt(2)), math.exp(math.sqrt(2)), 1.0]
    weights = [part / sum(parts) for part in parts]
    assert weights == pytest.approx([0.045, 0.768, 0.187], abs=5e-4)
    y = nn.functional.scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V)[
        2
    ]
    by_hand = [
        sum(w * v for w, v in zip(weights, column, strict=True))
        for column in ([1, 3, 1], [0, 2, 2])
    ]
    assert y.tolist() == pytest.approx(by_hand, abs=1e-6)
    assert by_hand == pytest.approx([2.54, 1.91], abs=5e-3)


def test_the_mask_has_something_to_hide():
    """The key that *cat* fits best belongs to a later token."""
    scores = (X @ W_Q) @ (X @ W_K).T
    assert scores[1].argmax() == 2
    assert scores.tolist() != scores.T.tolist()


def test_a_norm_leaves_the_vectors_as_they_are():
    assert torch.allclose(nn.functional.layer_norm(X, (4,)), X, atol=1e-4)
    # The control: a stream that attention has added to does change.
    added = X + nn.functional.pad(X @ W_V, (0, 2))
    assert not torch.allclose(
        nn.functional.layer_norm(added, (4,)), added, atol=0.1
    )


def close(x, expected):
    return torch.allclose(x, torch.tensor(expected), atol=6e-3)


def head(x, w_q, w_k, w_v):
    return attention(x @ w_q, x @ w_k, x @ w_v, causal_mask(3, 3))


def norm(x):
    return nn.functional.layer_norm(x, x.shape[-1:], eps=0.0)


def test_one_token_goes_through_the_whole_model():
    assert h.X[2].tolist() == [1, 1, -1, -1]
    assert torch.allclose(norm(h.X), h.X)  # so the first norm changes nothing
    assert (h.X[2] @ h.W_Q @ (h.X @ h.W_K).T).tolist() == [-2, 2, 0]
    first = head(h.X, h.W_Q, h.W_K, h.W_V)
    assert close(first[2], [2.54, 1.91])

    assert (h.X[2] @ h.W_Q2).tolist() == [2, 1]
    assert (h.X @ h.W_K2).tolist() == [[1, 1], [-1, 1], [-1, 1]]
    assert (h.X @ h.W_V2).tolist() == [[1, 1], [-1, 1], [-1, -1]]
    scores = h.X[2] @ h.W_Q2 @ (h.X @ h.W_K2).T
    assert scores.tolist() == [3, -1, -1]
    assert close((scores / 2**0.5).softmax(-1), [0.894, 0.053, 0.053])
    second = head(h.X, h.W_Q2, h.W_K2, h.W_V2)
    assert close(second[2], [0.79, 0.89])

    x = h.X + torch.cat([first, second], -1)
    assert close(x[2], [3.54, 2.91, -0.21, -0.11])
    assert close(x[2].mean(), 1.53)
    assert close(x[2].var(correction=0).sqrt(), 1.71)
    normed = norm(x)
    assert close(normed[2], [1.18, 0.81, -1.02, -0.96])

    hidden = normed @ h.W_1
    assert close(hidden[2], [1.98, -1.83, 0.15])
    x = x + hidden.relu() @ h.W_2
    assert close(x[2], [3.69, 4.89, -0.36, -2.09])

    logits = norm(x) @ h.UNEMBED.T
    assert close(norm(x)[2], [0.75, 1.18, -0.66, -1.27])
    assert close(logits[2], [-1.42, -2.44, 2.02, 3.62])
    p = logits.softmax(-1)
    assert [h.VOCABULARY[i] for i in p.argmax(-1)] == ["cat", "sat", "on"]
    assert close(p[2], [0.01, 0.00, 0.17, 0.83])
