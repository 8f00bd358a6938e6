"""Answers to the exercises of chapter 17."""

import itertools

import numpy as np
import torch
from torch.nn import functional as F

from tests.answers import right, wrong

# -- patches_of --------------------------------------------------------------


@right("vision/patches_of")
def patches_by_slices(images, size):
    patches = [
        images[:, :, y : y + size, x : x + size].flatten(1)
        for y in range(0, images.size(2), size)
        for x in range(0, images.size(3), size)
    ]
    return torch.stack(patches, dim=1)


@right("vision/patches_of")
def sliced(images, size):
    patches = []
    for top in range(0, images.shape[2], size):
        for left in range(0, images.shape[3], size):
            square = images[:, :, top : top + size, left : left + size]
            patches.append(square.flatten(1))
    return torch.stack(patches, 1)


@right("vision/patches_of")
def copying_kernels(images, size):
    n = images.size(1) * size * size
    kernels = torch.eye(n, dtype=torch.float64)
    kernels = kernels.view(n, images.size(1), size, size)
    x = F.conv2d(images.double(), kernels, stride=size)
    return x.flatten(2).mT.to(images.dtype)


@right("vision/patches_of")
def by_slices(images, size):
    height, width = images.shape[2:]
    return torch.stack(
        [
            images[:, :, y : y + size, x : x + size].flatten(1)
            for y in range(0, height, size)
            for x in range(0, width, size)
        ],
        dim=1,
    )


@right("vision/patches_of")
def by_windows(images, size):
    x = images.unfold(2, size, size).unfold(3, size, size)
    return x.movedim(1, 3).flatten(3).flatten(1, 2)


@right("vision/patches_of")
def by_number(images, size):
    channels, height, width = images.shape[1:]
    number = torch.arange(height * width).view(1, height, width)
    rows = [
        [
            c * height * width + number[0, y, x].item()
            for c in range(channels)
            for y, x in itertools.product(
                range(top, top + size), range(left, left + size)
            )
        ]
        for top in range(0, height, size)
        for left in range(0, width, size)
    ]
    return images.flatten(1)[:, torch.tensor(rows)]


@right("vision/patches_of")
def with_numpy(images, size):
    rows = [
        np.split(x, x.shape[3] // size, axis=3)
        for x in np.split(images.numpy(), images.shape[2] // size, axis=2)
    ]
    flat = [p.reshape(len(images), 1, -1) for row in rows for p in row]
    return torch.from_numpy(np.concatenate(flat, axis=1))


@wrong("vision/patches_of", "strips")
def patches_reshaped(images, size):
    B, C, Y, X = images.shape
    return images.reshape(B, (Y // size) * (X // size), C * size * size)


@wrong("vision/patches_of", "channels_last")
def patches_channels_last(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(B, -1, C * size * size)


@wrong("vision/patches_of", "column_by_column")
def down_the_columns(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    x = x.permute(0, 4, 2, 1, 3, 5)
    return x.reshape(B, -1, C * size * size)


@wrong("vision/patches_of", "turned")
def patch_transposed(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    x = x.permute(0, 2, 4, 1, 5, 3)
    return x.reshape(B, -1, C * size * size)


@wrong("vision/patches_of", "split_other_way")
def split_the_wrong_way(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, size, Y // size, size, X // size)
    x = x.permute(0, 3, 5, 1, 2, 4)
    return x.reshape(B, -1, C * size * size)


@wrong("vision/patches_of", "upright")
def upright(images, size):
    return by_slices(images, size).transpose(1, 2)


# As many rows as columns of patches: images that are not square go wrong.
@wrong("vision/patches_of")
def square_images_only(images, size):
    B, C, Y, _ = images.shape
    n = Y // size
    x = images[..., : n * size].reshape(B, C, n, size, -1, size)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(B, n * n, C * size * size)


@wrong("vision/patches_of")
def without_batch(images, size):
    return by_slices(images, size)[0]


@wrong("vision/patches_of")
def gray(images, size):
    return by_slices(images.mean(1, keepdim=True), size)


# -- classified --------------------------------------------------------------


@right("vision/classified")
def filled_buffer(patches, token, places, encode, head):
    B, N, D = patches.shape
    x = patches.new_empty(B, 1 + N, D)
    x[:, 0] = token.reshape(-1)
    x[:, 1:] = patches
    y = encode(x + places)
    return torch.einsum("bd,kd->bk", y[:, 0], head)


@right("vision/classified")
def image_by_image(patches, token, places, encode, head):
    first = token.reshape(1, -1) + places[:1]
    logits = []
    for image in patches:
        sequence = torch.cat([first, image + places[1:]])
        logits.append(head @ encode(sequence[None])[0, 0])
    return torch.stack(logits)


@right("vision/classified")
def filled(patches, token, places, encode, head):
    batch, n, width = patches.shape
    x = patches.new_empty(batch, n + 1, width)
    x[:, 0], x[:, 1:] = token, patches
    return F.linear(encode(x + places)[:, 0], head)


@right("vision/classified")
def parts_first(patches, token, places, encode, head):
    first = (token + places[0]).repeat(len(patches), 1, 1)
    x = torch.cat((first, patches + places[1:]), 1)
    return torch.einsum("bd,kd->bk", encode(x).select(1, 0), head)


@right("vision/classified")
def one_by_one(patches, token, places, encode, head):
    rows = []
    for image in patches:
        x = torch.vstack([token, image]) + places
        rows.append(head @ encode(x[None])[0, 0])
    return torch.stack(rows)


@wrong("vision/classified", "last_read")
def classified_reads_last(patches, token, places, encode, head):
    token = token.expand(len(patches), 1, -1)
    x = torch.cat([token, patches], dim=1) + places
    return encode(x)[:, -1] @ head.T


@wrong("vision/classified", "places_of_patches")
def places_one_off(patches, token, places, encode, head):
    x = patches + places[:-1]
    first = token.reshape(1, 1, -1).expand(len(x), 1, -1)
    return encode(torch.cat([first, x], dim=1))[:, 0] @ head.T


@wrong("vision/classified", "appended", "last_read")
def token_at_the_end(patches, token, places, encode, head):
    last = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([patches, last], dim=1) + places
    return encode(x)[:, -1] @ head.T


@wrong("vision/classified", "token_without_place")
def token_without_place(patches, token, places, encode, head):
    first = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([first, patches + places[1:]], dim=1)
    return encode(x)[:, 0] @ head.T


@wrong("vision/classified", "mean_read")
def mean_of_rows(patches, token, places, encode, head):
    first = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([first, patches], dim=1) + places
    return encode(x).mean(1) @ head.T


@wrong("vision/classified", "appended")
def appended(patches, token, places, encode, head):
    x = torch.cat([patches, token.repeat(len(patches), 1, 1)], 1) + places
    return encode(x)[:, 0] @ head.T


def sequence(patches, token):
    return torch.cat([token.repeat(len(patches), 1, 1), patches], 1)


@wrong("vision/classified", "no_places")
def no_places(patches, token, places, encode, head):
    return encode(sequence(patches, token))[:, 0] @ head.T


# Places are right, but the token stands at the end and row 0 is read.
@wrong("vision/classified")
def first_patch_read(patches, token, places, encode, head):
    x = patches + places[1:]
    last = (token.reshape(1, 1, -1) + places[0]).expand(len(x), 1, -1)
    return encode(torch.cat([x, last], dim=1))[:, 0] @ head.T


@wrong("vision/classified")
def mean_of_patches(patches, token, places, encode, head):
    return encode(sequence(patches, token) + places)[:, 1:].mean(1) @ head.T


@wrong("vision/classified")
def no_token(patches, token, places, encode, head):
    return encode(patches + places[1:])[:, 0] @ head.T


# -- grid_code ---------------------------------------------------------------


@right("vision/grid_code")
def grid_code_product(down, across):
    pairs = itertools.product(down, across)
    return torch.stack([torch.cat(pair) for pair in pairs])


@right("vision/grid_code")
def two_loops(down, across):
    return torch.stack(
        [torch.cat([row, column]) for row in down for column in across]
    )


@right("vision/grid_code")
def broadcast(down, across):
    R, C = len(down), len(across)
    grid = torch.cat(
        [down[:, None].expand(R, C, -1), across[None].expand(R, C, -1)], dim=2
    )
    return grid.reshape(R * C, -1)


@right("vision/grid_code")
def by_broadcast(down, across):
    shape = len(down), len(across)
    a = down[:, None].expand(*shape, -1)
    b = across[None].expand(*shape, -1)
    return torch.cat([a, b], -1).flatten(0, 1)


@right("vision/grid_code")
def by_index(down, across):
    at = torch.arange(len(down) * len(across))
    row, column = at // len(across), at % len(across)
    return torch.hstack([down[row], across[column]])


@wrong("vision/grid_code", "by_columns")
def down_first(down, across):
    rows = down.repeat(len(across), 1)
    columns = across.repeat_interleave(len(down), dim=0)
    return torch.cat([rows, columns], dim=1)


@wrong("vision/grid_code", "column_in_front")
def column_first(down, across):
    rows = down.repeat_interleave(len(across), dim=0)
    return torch.cat([across.repeat(len(down), 1), rows], dim=1)


@wrong("vision/grid_code", "own_counts")
def square_grid_only(down, across):
    rows = down.repeat_interleave(len(down), dim=0)
    return torch.cat([rows, across.repeat(len(across), 1)], dim=1)


@wrong("vision/grid_code", "both_repeated")
def both_tiled(down, across):
    return torch.cat(
        [down.repeat(len(across), 1), across.repeat(len(down), 1)], dim=1
    )


@wrong("vision/grid_code")
def three_axes(down, across):
    return by_broadcast(down, across).unflatten(0, (len(down), len(across)))


@wrong("vision/grid_code")
def multiplied(down, across):
    return (down[:, None] * across[None]).flatten(0, 1)


@wrong("vision/grid_code")
def rows_only(down, across):
    code = down.repeat_interleave(len(across), 0)
    return torch.cat([code, code], 1)


# -- resized -----------------------------------------------------------------


@right("vision/resized")
def by_a_matrix(table, old, new):
    eye = torch.eye(old * old, dtype=table.dtype)
    maps = F.interpolate(
        eye.view(1, -1, old, old), size=(new, new), mode="bilinear"
    )
    return torch.cat([table[:1], maps.view(old * old, -1).T @ table[1:]])


@right("vision/resized")
def number_by_number(table, old, new):
    columns = []
    for column in table[1:].unbind(1):
        grid = column.reshape(1, 1, old, old)
        grid = F.interpolate(
            grid, (new, new), mode="bilinear", align_corners=False
        )
        columns.append(grid.flatten())
    return torch.cat([table[0][None], torch.stack(columns, 1)])


@right("vision/resized")
def by_permute(table, old, new):
    grid = table[1:].view(old, old, -1).permute(2, 0, 1)[None]
    grid = F.interpolate(
        grid, (new, new), mode="bilinear", align_corners=False
    )
    return torch.vstack([table[:1], grid[0].permute(1, 2, 0).flatten(0, 1)])


@right("vision/resized")
def by_matrices(table, old, new):
    """Bilinear is linear, twice: a matrix for the rows, one for columns."""
    at = torch.arange(new, dtype=table.dtype) + 0.5
    at = (at * old / new - 0.5).clamp(0, old - 1)[:, None]
    w = (1 - (at - torch.arange(old)).abs()).clamp(min=0).to(table.dtype)
    grid = table[1:].view(old, old, -1)
    grid = torch.einsum("ar,bc,rcd->abd", w, w, grid)
    return torch.cat([table[:1], grid.reshape(new * new, -1)])


@right("vision/resized")
def channel_by_channel(table, old, new):
    columns = []
    for channel in table[1:].T:
        image = channel.reshape(1, 1, old, old)
        image = F.interpolate(image, size=new, mode="bilinear")
        columns.append(image.flatten())
    return torch.cat([table[:1], torch.stack(columns, dim=1)])


@wrong("vision/resized", "reshaped_both")
def resized_only_reshaped(table, old, new):
    grid = table[1:].reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(new * new, -1)])


@wrong("vision/resized", "corners")
def resized_corners(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(
        grid, size=(new, new), mode="bilinear", align_corners=True
    )
    return torch.cat([table[:1], grid.flatten(2)[0].T])


@wrong("vision/resized", "reshaped_back")
def not_brought_back(table, old, new):
    D = table.size(1)
    grid = table[1:].T.reshape(1, D, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(new * new, D)])


@wrong("vision/resized", "token_lost")
def class_token_missing(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return grid.flatten(2)[0].T


@wrong("vision/resized", "nearest")
def nearest(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new))
    return torch.cat([table[:1], grid.flatten(2)[0].T])


@wrong("vision/resized", "along_the_list")
def along_the_line(table, old, new):
    line = F.interpolate(table[1:].T[None], size=new * new, mode="linear")
    return torch.cat([table[:1], line[0].T])


# The last row is taken for the class token's.
@wrong("vision/resized")
def last_row_kept(table, old, new):
    grid = table[:-1].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([grid.flatten(2)[0].T, table[-1:]])


@wrong("vision/resized")
def token_behind(table, old, new):
    return by_permute(table, old, new).roll(-1, 0)


@wrong("vision/resized")
def token_averaged(table, old, new):
    own = table.mean(0, keepdim=True)
    return torch.cat([own, by_permute(table, old, new)[1:]])


# -- is_a_set ----------------------------------------------------------------


@right("vision/is_a_set")
def orders_as_lists(read, patches):
    n, before = len(patches), read(patches)

    def exchanged(i):
        order = list(range(n))
        order[i : i + 2] = order[i + 1], order[i]
        return read(patches[order])

    return all(torch.allclose(exchanged(i), before) for i in range(n - 1))


@right("vision/is_a_set")
def recursive_pairs(read, patches):
    usual = read(patches.clone())

    def unmoved(i):
        if i < 0:
            return True
        parts = (
            patches[:i],
            patches[i + 1 : i + 2],
            patches[i : i + 1],
            patches[i + 2 :],
        )
        gap = (read(torch.cat(parts)) - usual).abs().max().item()
        scale = max(usual.abs().max().item(), 1.0)
        return gap < 1e-6 * scale and unmoved(i - 1)

    return unmoved(len(patches) - 2)


def close(a, b):
    return bool((a - b).abs().max() < 1e-7)


def exchanged(patches, i, j):
    other = patches.clone()
    other[[i, j]] = patches[[j, i]]
    return other


@right("vision/is_a_set")
def every_pair(read, patches):
    before = read(patches)
    return all(
        close(read(exchanged(patches, i, j)), before)
        for i, j in itertools.combinations(range(len(patches)), 2)
    )


@right("vision/is_a_set")
def many_orders(read, patches):
    chance = torch.Generator().manual_seed(0)
    before = read(patches)
    for _ in range(20):
        order = torch.randperm(len(patches), generator=chance)
        if not close(read(patches[order]), before):
            return False
    return True


@right("vision/is_a_set")
def neighbors(read, patches):
    outs = [read(patches)]
    for i in range(1, len(patches)):
        outs.append(read(exchanged(patches, i - 1, i)))
    spread = torch.stack(outs).std(dim=0)
    return spread.max().item() < 1e-8


@wrong("vision/is_a_set", "reversed")
def set_turned_round(read, patches):
    return torch.allclose(read(patches), read(patches.flip(0)), atol=1e-5)


def _exchange(patches, i):
    order = torch.arange(len(patches))
    order[i], order[i + 1] = i + 1, i
    return patches[order]


@wrong("vision/is_a_set", "first_two")
def first_pair_only(read, patches):
    return torch.allclose(read(_exchange(patches, 0)), read(patches))


@wrong("vision/is_a_set", "last_forgotten")
def last_pair_forgotten(read, patches):
    before = read(patches)
    return all(
        torch.allclose(read(_exchange(patches, i)), before, atol=1e-6)
        for i in range(len(patches) - 2)
    )


@wrong("vision/is_a_set", "exactly")
def to_the_last_bit(read, patches):
    before = read(patches)
    return all(
        torch.equal(read(_exchange(patches, i)), before)
        for i in range(len(patches) - 1)
    )


@wrong("vision/is_a_set", "one_is_enough")
def one_is_enough(read, patches):
    before = read(patches)
    return any(
        torch.allclose(read(_exchange(patches, i)), before, atol=1e-6)
        for i in range(len(patches) - 1)
    )


@wrong("vision/is_a_set")
def rolled_only(read, patches):
    moved = torch.cat([patches[-1:], patches[:-1]])
    return close(read(patches), read(moved))


@wrong("vision/is_a_set")
def sums_only(read, patches):
    return all(
        close(read(exchanged(patches, i, i + 1)).sum(), read(patches).sum())
        for i in range(len(patches) - 1)
    )


@wrong("vision/is_a_set")
def one_patch_twice(read, patches):
    before = read(patches)
    for i in range(len(patches) - 1):
        other = patches.clone()
        other[i], other[i + 1] = other[i + 1], other[i]
        if not torch.allclose(read(other), before, atol=1e-6):
            return False
    return True
