"""Images as sequences: cut into patches, and read by the same encoder.

A patch is a token that needs no vocabulary: its numbers are its pixels.  One
matrix makes it a vector; from there on nothing knows that it was an image.
"""

import io
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from coursekit.attention import Attend, fast_attend
from coursekit.checks import is_integer, require
from coursekit.config import VisionConfig
from coursekit.encoder import Encoder
from coursekit.positions import SinusoidalPositions, sinusoidal

CLOTHES = (
    *("T-shirt", "trousers", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "boot"),
)
"""The ten kinds of Fashion-MNIST, by their numbers."""


# -- images to patches, and back ---------------------------------------------


def patchify(
    images: Float[Tensor, "B C Y X"], size: int
) -> Float[Tensor, "B N P"]:
    """Cut images into squares and lay each square's pixels in a row.

    Patches in reading order; in a patch channel by channel, each in reading
    order: the order in which a convolution's weights lie.

    Args:
        images: (B, C, Y, X), Y high and X wide.
        size: height and width of a patch, in pixels.

    Returns:
        (B, N, P) with N = Y X / size² patches of P = C · size² numbers.

    Raises:
        ValueError: if the images cannot be cut into whole patches.

    Chapter: 17, vision.
    Source: dosovitskiy2021image, section 3.1.
    Test: test_vision.py::test_patches_are_those_of_a_convolution
    """
    batch, channels, height, width = images.shape
    require(
        is_integer(size) and height % size == width % size == 0,
        "height and width must be multiples of the patch",
        f"images of {height} x {width} and patches of {size}",
        "Choose another patch, or scale the images.",
    )
    rows, columns = height // size, width // size
    x = images.reshape(batch, channels, rows, size, columns, size)
    x = x.permute(0, 2, 4, 1, 3, 5)  # the two that count patches come first
    return x.reshape(batch, rows * columns, channels * size * size)


def unpatchify(
    patches: Float[Tensor, "B N P"], size: int, height: int, width: int
) -> Float[Tensor, "B C Y X"]:
    """Assemble images from patches: the inverse of :func:`patchify`.

    Args:
        patches: (B, N, P).
        size: height and width of a patch, in pixels.
        height, width: of the images, in pixels.

    Returns:
        (B, C, Y, X) images, with C = P / size² channels.

    Raises:
        ValueError: if the patches do not fill such an image.

    Chapter: 17, vision.
    Test: test_vision.py::test_there_and_back
    """
    batch, n, numbers = patches.shape
    rows, columns = height // size, width // size
    whole = rows * size == height and columns * size == width
    require(
        whole and n == rows * columns and numbers % size**2 == 0,
        "patches must fill the image",
        f"{n} patches of {numbers} numbers, of size {size}, for {height} x "
        f"{width} pixels",
        "Give the size and the image that they were cut from.",
    )
    x = patches.reshape(batch, rows, columns, -1, size, size)
    x = x.permute(0, 3, 1, 4, 2, 5)
    return x.reshape(batch, -1, height, width)


def shuffle_patches(
    images: Float[Tensor, "B C Y X"],
    size: int,
    order: Int[Tensor, "..."],
    inside: Int[Tensor, "P"] | None = None,
) -> Float[Tensor, "B C Y X"]:
    """Permute the patches of images.

    Args:
        images: (B, C, Y, X).
        size: height and width of a patch, in pixels.
        order: (N,) for all images, or (B, N), one for each: which patch comes
            to position 0, 1, …
        inside: (P,) which of a patch's P = C · size² values comes to position
            0, 1, … in it, the same in all patches; by default they stay.

    Returns:
        (B, C, Y, X).

    Raises:
        ValueError: if the images cannot be cut into whole patches.

    Chapter: 17, vision.
    """
    patches = patchify(images, size)
    rows = order.to(images.device).expand(patches.shape[:2])[..., None]
    patches = patches.gather(1, rows.expand(patches.shape))
    if inside is not None:
        patches = patches[:, :, inside]
    height, width = images.shape[-2:]
    return unpatchify(patches, size, height, width)


# -- positions in two dimensions ---------------------------------------------


def sinusoidal_2d(
    rows: int, columns: int, d_model: int
) -> Float[Tensor, "N D"]:
    """Encode positions on a grid: half by the row, half by the column.

    ``PE[(r, c)] = [PE(r), PE(c)]`` with two encodings of :func:`sinusoidal`.

    Args:
        rows, columns: of the grid.
        d_model: D, a multiple of 4.

    Returns:
        (N, D) encodings of the N = rows · columns positions, in reading order.

    Raises:
        ValueError: if D is no multiple of 4.

    Chapter: 17, vision.
    Test: test_vision.py::test_codes_of_a_grid
    """
    require(
        d_model % 4 == 0,
        "a code of two dimensions has two halves of pairs, so d_model must "
        "be a multiple of 4",
        str(d_model),
        "Choose one.",
    )
    down = sinusoidal(rows, d_model // 2).repeat_interleave(columns, dim=0)
    across = sinusoidal(columns, d_model // 2).repeat(rows, 1)
    return torch.cat([down, across], dim=1)


class GridPositions(SinusoidalPositions):
    """Adds :func:`sinusoidal_2d` to patches, and nothing to the class token.

    Args:
        grid: rows of patches, and patches in a row.
        d_model: D, a multiple of 4.

    Chapter: 17, vision.
    """

    def __init__(self, grid: int, d_model: int) -> None:
        super().__init__(1 + grid**2, d_model)
        code = sinusoidal_2d(grid, grid, d_model)
        self.code = torch.cat([torch.zeros_like(code[:1]), code])


# -- the model ---------------------------------------------------------------


class ViT(Encoder):
    """The encoder, reading patches: images in, logits of classes out.

    Its vocabulary has one word, the class token.  It stands before the
    patches, and the class is read from it.

    Args:
        config: every choice.
        attend: the attention function.

    Differs from the paper: no decoder, and its tokens are patches.
    Chapter: 17, vision.
    Source: dosovitskiy2021image, equations 1 to 4.
    Test: test_vision.py::test_equal_to_another_library
    """

    config: VisionConfig

    def __init__(
        self, config: VisionConfig, attend: Attend = fast_attend
    ) -> None:
        config = replace(config, max_len=1 + config.grid**2)
        super().__init__(config, attend)
        if config.positions == "sinusoidal":
            self.positions = GridPositions(config.grid, config.d_model)
        n_numbers = config.n_channels * config.patch_size**2
        self.patches = nn.Linear(n_numbers, config.d_model)
        self.head = nn.Linear(config.d_model, config.n_classes)

    def forward(
        self, images: Float[Tensor, "B C Y X"], mask: Tensor | None = None
    ) -> Float[Tensor, "B V"]:
        """Tell what is to be seen.

        Args:
            images: (B, C, Y, X).
            mask: which of the T = 1 + N tokens may be seen, broadcast to
                (B, H, T, T); an image hides none.

        Returns:
            (B, V) logits of the V classes.

        Raises:
            ValueError: if the images have another size.
        """
        return self.head(self.features(images, mask)[:, 0])

    def features(
        self, images: Float[Tensor, "B C Y X"], mask: Tensor | None = None
    ) -> Float[Tensor, "B T D"]:
        """Give the class token, and each patch, a vector that knows the image.

        Args, Raises: as :meth:`forward`.

        Returns:
            (B, T, D) with T = 1 + N, the class token and then the patches.
        """
        config = self.config
        wanted = config.n_channels, config.image_size, config.image_size
        require(
            images.shape[1:] == wanted,
            f"images must be (B, C, Y, X) with (C, Y, X) = {wanted}",
            str(tuple(images.shape)),
            "Scale them, or build the model for them.",
        )
        x = self.patches(patchify(images, config.patch_size))
        ids = torch.zeros(len(x), 1, dtype=torch.long, device=x.device)
        x = torch.cat([self.embedding(ids), x], dim=1)
        return self.read(x, mask)


# -- images ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fashion:
    """Pictures of clothes, 28 × 28 points from 0 (background) to 1."""

    images: Float[Tensor, "6000 1 28 28"]
    """To learn from, 600 of each of the ten kinds."""
    labels: Int[Tensor, "6000"]
    """Their kinds, numbers of ``CLOTHES``."""
    test_images: Float[Tensor, "1000 1 28 28"]
    """To be tested with, 100 of each kind."""
    test_labels: Int[Tensor, "1000"]
    """Their kinds."""


def load_fashion() -> Fashion:
    """Read 7,000 pictures of Fashion-MNIST, which the package brings along.

    Returns:
        Images and labels, to learn from and to be tested with.

    Chapter: 17, vision.
    Source: xiao2017fashion.
    """
    asset = resources.files("coursekit") / "assets/fashion_mnist_7k.npz"
    with np.load(io.BytesIO(asset.read_bytes())) as file:
        data = {name: torch.tensor(file[name]) for name in file.files}
    dtype = torch.get_default_dtype()
    parts = []
    for part in ("train", "test"):
        pixels = data[f"{part}_images"][:, None].to(dtype)
        parts += [pixels / 255, data[f"{part}_labels"].long()]
    return Fashion(*parts)
