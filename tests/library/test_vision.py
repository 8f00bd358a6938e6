"""Images: patches like a convolution's, a model like another library's."""

import pytest
import torch
from compare import Links, close, differ, shake
from torch import nn
from torch.nn import functional as F  # noqa: N812
from transformers import ViTConfig, ViTForImageClassification

from coursekit.attention import attend, fast_attend
from coursekit.config import TrainConfig, VisionConfig
from coursekit.data import Batch
from coursekit.masks import causal_mask
from coursekit.positions import sinusoidal
from coursekit.saved_models import load_model, save_model
from coursekit.training import train
from coursekit.vision import (
    CLOTHES,
    GridPositions,
    ViT,
    load_fashion,
    patchify,
    shuffle_patches,
    sinusoidal_2d,
    unpatchify,
)
from coursekit_classroom.baselines import convolution, mlp

B, C, P, D, HEADS, LAYERS, DFF, KINDS = 5, 3, 7, 44, 11, 2, 29, 13
SIDE = 3 * P  # nine patches
N = 9


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(B, C, SIDE, SIDE, generator=generator).double()


def config(**changes):
    return VisionConfig(
        **{
            "image_size": SIDE,
            "patch_size": P,
            "n_channels": C,
            "n_classes": KINDS,
            "d_model": D,
            "n_heads": HEADS,
            "n_layers": LAYERS,
            "d_ff": DFF,
        }
        | changes
    )


def made(attend=fast_attend, **changes):
    return shake(ViT(config(**changes), attend).double())


# -- patches -----------------------------------------------------------------
def test_one_pixel_comes_to_one_place():
    """By hand: row 4, column 3 of a 6 x 4 image cut into squares of 2."""
    image = torch.zeros(1, 2, 6, 4)
    image[0, 1, 4, 3] = 1  # the second channel
    patches = patchify(image, 2)
    assert patches.shape == (1, 6, 8)
    # Patch row 2, column 1: patch 5. In it row 0, column 1 of channel 1.
    assert patches.nonzero().tolist() == [[0, 5, 4 + 1]]


@pytest.mark.parametrize(("height", "width"), [(15, 35), (35, 15), (5, 5)])
def test_patches_are_those_of_a_convolution(height, width):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, C, height, width, generator=generator).double()
    kernel = torch.randn(D, C, 5, 5, generator=generator).double()
    theirs = F.conv2d(x, kernel, stride=5).flatten(2).mT
    ours = patchify(x, 5) @ kernel.flatten(1).T
    close(ours, theirs, 1e-12)
    assert torch.equal(patchify(x, 5), F.unfold(x, 5, stride=5).mT)
    if (height, width) != (5, 5):  # one patch is as it lies in memory
        differ(x.reshape(B, -1, C * 25), patchify(x, 5))
    differ(patchify(x.mT, 5)[:, 0], patchify(x, 5)[:, 0])


@pytest.mark.parametrize(("height", "width"), [(15, 35), (35, 15), (5, 5)])
def test_there_and_back(height, width):
    x = torch.arange(2 * C * height * width).double()
    x = x.view(2, C, height, width)
    patches = patchify(x, 5)
    assert torch.equal(unpatchify(patches, 5, height, width), x)
    fold = F.fold(patches.mT, (height, width), 5, stride=5)
    assert torch.equal(unpatchify(patches, 5, height, width), fold)
    if height != width:
        assert not torch.equal(unpatchify(patches, 5, width, height), x.mT)


@pytest.mark.parametrize(
    ("shape", "size", "received"),
    [
        ((1, 1, 7, 9), 3, "7 x 9 and patches of 3"),
        ((1, 1, 9, 7), 3, "9 x 7 and patches of 3"),
        ((1, 1, 9, 9), 0, "patches of 0"),
    ],
)
def test_images_that_cannot_be_cut(shape, size, received):
    with pytest.raises(ValueError, match=received):
        patchify(torch.zeros(shape), size)


@pytest.mark.parametrize(
    ("shape", "height", "received"),
    [
        ((1, 5, 9), 6, "5 patches of 9"),
        ((1, 4, 8), 6, "of 8 numbers"),
        ((1, 4, 9), 7, "7 x 6 pixels"),
    ],
)
def test_patches_that_fill_no_image(shape, height, received):
    with pytest.raises(ValueError, match=received):
        unpatchify(torch.zeros(shape), 3, height, 6)


def test_shuffled_patches(images):
    chance = torch.Generator().manual_seed(2)
    order = torch.rand(B, N, generator=chance).argsort(1)
    for given in (order, order[0], order[:1]):
        moved = shuffle_patches(images, P, given)
        cut, rows = patchify(images, P), given.expand(B, N)
        for b in range(B):
            assert torch.equal(patchify(moved, P)[b], cut[b][rows[b]])
    back = shuffle_patches(moved, P, order[0].argsort())
    assert torch.equal(back, images)


# -- places ------------------------------------------------------------------
def test_codes_of_a_grid():
    code = sinusoidal_2d(3, 5, 12)
    down, across = sinusoidal(3, 6), sinusoidal(5, 6)
    assert code.shape == (15, 12)
    for row in range(3):
        for column in range(5):
            both = torch.cat([down[row], across[column]])
            assert torch.equal(code[5 * row + column], both)
    # One step down and one to the right are equally far.
    gap = (code - code[6]).norm(dim=1)
    assert gap[7] == pytest.approx(gap[11].item())
    flat = sinusoidal(15, 12)
    gap = (flat - flat[6]).norm(dim=1)
    assert gap[11] > 1.5 * gap[7]  # in one dimension they are not


def test_a_grid_needs_fours():
    with pytest.raises(ValueError, match="got 6"):
        sinusoidal_2d(2, 2, 6)


def test_the_class_token_has_no_place():
    scheme, x = GridPositions(3, 8), torch.zeros(1, 10, 8)
    y = scheme(x, torch.arange(10))
    assert torch.equal(y[0, 0], x[0, 0])
    assert torch.equal(y[0, 1:], sinusoidal_2d(3, 3, 8))


# -- the model ---------------------------------------------------------------
def theirs_and_ours(attend):
    """A ViT of another library, and ours with its weights."""
    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=D,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=DFF,
            image_size=SIDE,
            patch_size=P,
            num_channels=C,
            num_labels=KINDS,
            layer_norm_eps=1e-5,
        )
    )
    theirs = shake(theirs.double().eval())
    ours, links = ViT(config(), attend).double(), Links()
    embeddings = theirs.vit.embeddings
    links.add(ours.embedding.weight, embeddings.cls_token, lambda w: w[0])
    links.add(
        ours.positions.weight, embeddings.position_embeddings, lambda w: w[0]
    )
    projection = embeddings.patch_embeddings.projection
    links.add(ours.patches.weight, projection.weight, lambda w: w.flatten(1))
    links.add(ours.patches.bias, projection.bias)
    for block, layer in zip(ours.blocks, theirs.vit.layers, strict=True):
        a, s = block.attention, layer.attention
        for part in "qkvo":
            links.linear(getattr(a, f"w_{part}"), getattr(s, f"{part}_proj"))
        f = block.feed_forward
        links.linear(f.w_in, layer.mlp.fc1)
        links.linear(f.w_out, layer.mlp.fc2)
        links.norm(block.attention_norm, layer.layernorm_before)
        links.norm(block.feed_forward_norm, layer.layernorm_after)
    links.norm(ours.final_norm, theirs.vit.layernorm)
    links.linear(ours.head, theirs.classifier)
    links.covers(ours)
    return theirs, ours, links


@pytest.mark.parametrize("attend", [attend, fast_attend])
def test_equal_to_another_library(attend, images):
    theirs, ours, links = theirs_and_ours(attend)
    logits = theirs(pixel_values=images).logits
    close(ours(images), logits, 1e-12)
    differ(ours(images.mT), logits)
    labels = torch.arange(B) % KINDS
    F.cross_entropy(ours(images), labels).backward()
    F.cross_entropy(logits, labels).backward()
    links.same_gradients(1e-11)


@torch.no_grad()
def test_every_patch_is_seen():
    """No causal mask: the first vector moves with each patch."""
    model = made()
    cut = torch.randn(1, N, C * P * P).double()
    image = unpatchify(cut, P, SIDE, SIDE)
    before = model.features(image)
    for i in range(N):
        other = cut.clone()
        other[0, i] += 1
        moved = model.features(unpatchify(other, P, SIDE, SIDE)) - before
        assert (moved.abs().amax(-1) > 1e-6).all()
    mask = causal_mask(1 + N)  # with one it would not
    other = unpatchify(other, P, SIDE, SIDE)
    hidden = model.features(image, mask) - model.features(other, mask)
    assert hidden[:, 0].abs().max() == 0


@torch.no_grad()
@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal"])
def test_without_positions_an_image_is_a_set(positions, images):
    model = made(positions=positions)
    chance = torch.Generator().manual_seed(3)
    order = torch.rand(B, N, generator=chance).argsort(1)
    moved = shuffle_patches(images, P, order)
    if positions == "none":
        close(model(moved), model(images), 1e-12)
    else:
        differ(model(moved), model(images))


@torch.no_grad()
def test_learned_places_can_be_dealt_out_anew(images):
    """Patches in another order, and the table's rows in the same one."""
    model, order = made(), torch.randperm(N)
    before = model(images)
    moved = shuffle_patches(images, P, order)
    differ(model(moved), before)
    rows = model.positions.weight
    rows[1:] = rows[1:][order]
    close(model(moved), before, 1e-12)


@torch.no_grad()
def test_its_sinusoids_know_two_dimensions(images):
    model = made(positions="sinusoidal")
    assert isinstance(model.positions, GridPositions)
    names = dict(model.named_parameters())
    assert not any(name.startswith("positions") for name in names)


def test_parameters_by_hand():
    block = 4 * (D * D + D) + 2 * D * DFF + DFF + D + 4 * D
    hand = D + (1 + N) * D + (C * P * P + 1) * D
    hand += LAYERS * block + 2 * D + (D + 1) * KINDS
    model = ViT(config())
    assert sum(p.numel() for p in model.parameters()) == hand


@pytest.mark.parametrize(
    ("shape", "received"),
    [((1, C, SIDE, SIDE + P), SIDE + P), ((1, 1, SIDE, SIDE), 1)],
)
def test_images_of_another_size_are_refused(shape, received):
    with pytest.raises(ValueError, match=f"got .*{received}"):
        made()(torch.zeros(shape).double())


@pytest.mark.parametrize(
    ("fields", "received"),
    [
        ({"patch_size": 5}, "image_size=21, patch_size=5"),
        ({"patch_size": 0}, "got 0"),
        ({"n_classes": 0}, "got 0"),
        ({"n_channels": -2}, "got -2"),
        ({"positions": "rope"}, "got 'rope'"),
        ({"positions": "sinusoidal", "d_model": 22}, "d_model=22"),
    ],
)
def test_configurations_that_cannot_work(fields, received):
    with pytest.raises(ValueError, match=received):
        config(**fields)


@torch.no_grad()
def test_it_comes_back_from_its_folder(tmp_path, images):
    model = ViT(config())
    save_model(tmp_path / "m", model)
    back, _ = load_model(tmp_path / "m")
    assert back.config == model.config
    assert back.config.max_len == 1 + N
    x = images.float()
    assert torch.equal(back(x), model.eval()(x))


# -- what it is measured against, and on -------------------------------------
def test_rivals():
    x = torch.randn(B, 1, 28, 28)
    for model, numbers in (
        (mlp(7), 784 * 7 + 7 + 7 * 7 + 7 + 7 * 10 + 10),
        (
            convolution(3),
            (25 * 3 + 3) + (27 * 6 + 6) + (54 * 12 + 12) + (16 * 12 + 1) * 10,
        ),
    ):
        assert model(x).shape == (B, 10)
        assert sum(p.numel() for p in model.parameters()) == numbers


def test_the_pictures():
    data = load_fashion()
    assert data.images.shape == (6000, 1, 28, 28)
    assert data.test_images.shape == (1000, 1, 28, 28)
    for labels, each in ((data.labels, 600), (data.test_labels, 100)):
        assert labels.bincount().tolist() == [each] * len(CLOTHES)
    for images in (data.images, data.test_images):
        assert images.min() == 0
        assert images.max() == 1
    # No test picture is among those to learn from.
    known = {image.numpy().tobytes() for image in data.images}
    assert not any(x.numpy().tobytes() in known for x in data.test_images)
    # Trousers are two legs: in the lower middle they let the ground through.
    legs = data.images[data.labels == CLOTHES.index("trousers")].mean(0)[0]
    shirt = data.images[data.labels == CLOTHES.index("T-shirt")].mean(0)[0]
    assert legs[18:26, 13:15].mean() < 0.5 * legs[18:26, 9:12].mean()
    assert shirt[18:26, 13:15].mean() > 0.8 * shirt[18:26, 9:12].mean()


def test_the_loop_trains_it():
    """One batch is learned by heart, with the course's own loop."""

    data = load_fashion()
    batch = Batch({"images": data.images[:23]}, data.labels[:23])
    torch.manual_seed(0)
    model = ViT(VisionConfig(patch_size=14, d_model=16, n_layers=1))
    how = TrainConfig(steps=60, learning_rate=1e-2, warmup_steps=5)
    state = train(model, lambda step: [batch], how, progress=False)
    assert state.losses[0] > 2
    assert state.losses[-1] < 0.3


def test_a_patch_matrix_is_a_convolution(images):
    model = made()
    layer = nn.Conv2d(C, D, P, stride=P).double()
    with torch.no_grad():
        layer.weight.copy_(model.patches.weight.view(layer.weight.shape))
        layer.bias.copy_(model.patches.bias)
        theirs = layer(images).flatten(2).mT
        close(model.patches(patchify(images, P)), theirs, 1e-12)
