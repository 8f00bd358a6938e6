"""Answers to the exercises of chapter 17, as people write them."""

import itertools

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812


# -- patches_of --------------------------------------------------------------
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


def by_windows(images, size):
    x = images.unfold(2, size, size).unfold(3, size, size)
    return x.movedim(1, 3).flatten(3).flatten(1, 2)


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


def with_numpy(images, size):
    rows = [
        np.split(x, x.shape[3] // size, axis=3)
        for x in np.split(images.numpy(), images.shape[2] // size, axis=2)
    ]
    flat = [p.reshape(len(images), 1, -1) for row in rows for p in row]
    return torch.from_numpy(np.concatenate(flat, axis=1))


def strips(images, size):
    n = images[0, 0].numel() // size**2
    return images.contiguous().view(len(images), n, -1)


def channels_last(images, size):
    cut = by_slices(images, size)
    x = cut.unflatten(2, (images.size(1), size * size))
    return x.transpose(2, 3).flatten(2)


def turned(images, size):
    return torch.stack(
        [
            piece.mT.flatten(1)
            for row in images.split(size, dim=2)
            for piece in row.split(size, dim=3)
        ],
        dim=1,
    )


def column_by_column(images, size):
    return torch.stack(
        [
            piece.flatten(1)
            for column in images.split(size, dim=3)
            for piece in column.split(size, dim=2)
        ],
        dim=1,
    )


def upright(images, size):
    return by_slices(images, size).transpose(1, 2)


def without_batch(images, size):
    return by_slices(images, size)[0]


def channels_as_patches(images, size):
    x = images.unfold(2, size, size).unfold(3, size, size)
    return x.reshape(len(images), -1, size * size)


def gray(images, size):
    return by_slices(images.mean(1, keepdim=True), size)


# -- classified --------------------------------------------------------------
def filled(patches, token, places, encode, head):
    batch, n, width = patches.shape
    x = patches.new_empty(batch, n + 1, width)
    x[:, 0], x[:, 1:] = token, patches
    return F.linear(encode(x + places)[:, 0], head)


def parts_first(patches, token, places, encode, head):
    first = (token + places[0]).repeat(len(patches), 1, 1)
    x = torch.cat((first, patches + places[1:]), 1)
    return torch.einsum("bd,kd->bk", encode(x).select(1, 0), head)


def one_by_one(patches, token, places, encode, head):
    rows = []
    for image in patches:
        x = torch.vstack([token, image]) + places
        rows.append(head @ encode(x[None])[0, 0])
    return torch.stack(rows)


def appended(patches, token, places, encode, head):
    x = torch.cat([patches, token.repeat(len(patches), 1, 1)], 1) + places
    return encode(x)[:, 0] @ head.T


def sequence(patches, token):
    return torch.cat([token.repeat(len(patches), 1, 1), patches], 1)


def token_without_place(patches, token, places, encode, head):
    return encode(sequence(patches + places[1:], token))[:, 0] @ head.T


def places_of_patches(patches, token, places, encode, head):
    return encode(sequence(patches + places[:-1], token))[:, 0] @ head.T


def no_places(patches, token, places, encode, head):
    return encode(sequence(patches, token))[:, 0] @ head.T


def last_read(patches, token, places, encode, head):
    return encode(sequence(patches, token) + places)[:, -1] @ head.T


def mean_read(patches, token, places, encode, head):
    return encode(sequence(patches, token) + places).mean(1) @ head.T


def mean_of_patches(patches, token, places, encode, head):
    return encode(sequence(patches, token) + places)[:, 1:].mean(1) @ head.T


def no_token(patches, token, places, encode, head):
    return encode(patches + places[1:])[:, 0] @ head.T


def places_behind(patches, token, places, encode, head):
    return (encode(sequence(patches, token)) + places)[:, 0] @ head.T


def token_added(patches, token, places, encode, head):
    x = torch.cat([torch.zeros_like(patches[:, :1]), patches + token], 1)
    return encode(x + places)[:, 0] @ head.T


# -- grid_code ---------------------------------------------------------------
def place_by_place(down, across):
    return torch.stack(
        [torch.cat([row, column]) for row in down for column in across]
    )


def by_broadcast(down, across):
    shape = len(down), len(across)
    a = down[:, None].expand(*shape, -1)
    b = across[None].expand(*shape, -1)
    return torch.cat([a, b], -1).flatten(0, 1)


def by_index(down, across):
    at = torch.arange(len(down) * len(across))
    row, column = at // len(across), at % len(across)
    return torch.hstack([down[row], across[column]])


def pairs(down, across, order):
    return torch.stack([torch.cat([down[r], across[c]]) for r, c in order])


def by_columns(down, across):
    order = [(r, c) for c in range(len(across)) for r in range(len(down))]
    return pairs(down, across, order)


def both_repeated(down, across):
    n = len(down) * len(across)
    return pairs(
        down, across, [(i % len(down), i % len(across)) for i in range(n)]
    )


def three_axes(down, across):
    return by_broadcast(down, across).unflatten(0, (len(down), len(across)))


def rows_only(down, across):
    code = down.repeat_interleave(len(across), 0)
    return torch.cat([code, code], 1)


def alternating(down, across):
    both = by_index(down, across).unflatten(1, (2, -1))
    return both.mT.flatten(1)


def multiplied(down, across):
    return (down[:, None] * across[None]).flatten(0, 1)


# -- resized -----------------------------------------------------------------
def by_permute(table, old, new):
    grid = table[1:].view(old, old, -1).permute(2, 0, 1)[None]
    grid = F.interpolate(
        grid, (new, new), mode="bilinear", align_corners=False
    )
    return torch.vstack([table[:1], grid[0].permute(1, 2, 0).flatten(0, 1)])


def by_matrices(table, old, new):
    """Bilinear is linear, twice: a matrix for the rows, one for columns."""
    at = torch.arange(new, dtype=table.dtype) + 0.5
    at = (at * old / new - 0.5).clamp(0, old - 1)[:, None]
    w = (1 - (at - torch.arange(old)).abs()).clamp(min=0).to(table.dtype)
    grid = table[1:].view(old, old, -1)
    grid = torch.einsum("ar,bc,rcd->abd", w, w, grid)
    return torch.cat([table[:1], grid.reshape(new * new, -1)])


def channel_by_channel(table, old, new):
    columns = []
    for channel in table[1:].T:
        image = channel.reshape(1, 1, old, old)
        image = F.interpolate(image, size=new, mode="bilinear")
        columns.append(image.flatten())
    return torch.cat([table[:1], torch.stack(columns, dim=1)])


def scaled(grid, new, **how):
    how = {"mode": "bilinear"} | how
    return F.interpolate(grid[None], (new, new), **how)[0]


def along_the_list(table, old, new):
    line = F.interpolate(table[1:].T[None], new * new, mode="linear")
    return torch.cat([table[:1], line[0].T])


def reshaped_back(table, old, new):
    grid = table[1:].unflatten(0, (old, old)).movedim(-1, 0)
    return torch.cat([table[:1], scaled(grid, new).reshape(new * new, -1)])


def nearest(table, old, new):
    at = torch.arange(new) * old // new
    grid = table[1:].unflatten(0, (old, old))[at][:, at]
    return torch.cat([table[:1], grid.flatten(0, 1)])


def token_lost(table, old, new):
    return by_permute(table, old, new)[1:]


def bicubic(table, old, new):
    grid = table[1:].T.unflatten(1, (old, old))
    grid = scaled(grid, new, mode="bicubic")
    return torch.cat([table[:1], grid.flatten(1).T])


def cut_off(table, old, new):
    grid = torch.zeros(new, new, table.size(1), dtype=table.dtype)
    grid[:old, :old] = table[1:].unflatten(0, (old, old))
    return torch.cat([table[:1], grid.flatten(0, 1)])


def token_averaged(table, old, new):
    own = table.mean(0, keepdim=True)
    return torch.cat([own, by_permute(table, old, new)[1:]])


def token_behind(table, old, new):
    return by_permute(table, old, new).roll(-1, 0)


# -- is_a_set ----------------------------------------------------------------
def close(a, b):
    return bool((a - b).abs().max() < 1e-7)


def exchanged(patches, i, j):
    other = patches.clone()
    other[[i, j]] = patches[[j, i]]
    return other


def every_pair(read, patches):
    before = read(patches)
    return all(
        close(read(exchanged(patches, i, j)), before)
        for i, j in itertools.combinations(range(len(patches)), 2)
    )


def many_orders(read, patches):
    chance = torch.Generator().manual_seed(0)
    before = read(patches)
    for _ in range(20):
        order = torch.randperm(len(patches), generator=chance)
        if not close(read(patches[order]), before):
            return False
    return True


def neighbors(read, patches):
    outs = [read(patches)]
    for i in range(1, len(patches)):
        outs.append(read(exchanged(patches, i - 1, i)))
    spread = torch.stack(outs).std(dim=0)
    return spread.max().item() < 1e-8


def first_two(read, patches):
    return close(read(patches), read(exchanged(patches, 0, 1)))


def reversed_only(read, patches):
    return close(read(patches), read(torch.flip(patches, [0])))


def rolled_only(read, patches):
    moved = torch.cat([patches[-1:], patches[:-1]])
    return close(read(patches), read(moved))


def exactly(read, patches):
    return all(
        bool((read(exchanged(patches, i, i + 1)) == read(patches)).all())
        for i in range(len(patches) - 1)
    )


def sums_only(read, patches):
    return all(
        close(read(exchanged(patches, i, i + 1)).sum(), read(patches).sum())
        for i in range(len(patches) - 1)
    )


def always(read, patches):
    return True


def never(read, patches):
    return False


def inside_out(read, patches):
    return not every_pair(read, patches)


def split_other_way(images, size):
    y, x = images.shape[2:]
    every = images.unflatten(3, (size, x // size)).unflatten(
        2, (size, y // size)
    )
    return every.permute(0, 3, 5, 1, 2, 4).flatten(3).flatten(1, 2)


def own_counts(down, across):
    left = torch.repeat_interleave(down, len(down), 0)
    return torch.cat((left, torch.tile(across, (len(across), 1))), 1)


def reshaped_both(table, old, new):
    width = table.shape[-1]
    grid = table[1:].view(1, width, old, old)
    large = F.interpolate(
        grid, (new, new), mode="bilinear", align_corners=False
    )
    return torch.vstack((table[0], large.view(-1, width)))


def one_is_enough(read, patches):
    found = read(patches)
    for i in range(1, len(patches)):
        order = list(range(len(patches)))
        order[i - 1 : i + 1] = [i, i - 1]
        if torch.allclose(read(patches[order]), found):
            return True
    return False


def last_forgotten(read, patches):
    found = read(patches)
    for i in range(len(patches) - 2):
        order = list(range(len(patches)))
        order[i], order[i + 1] = order[i + 1], order[i]
        if not torch.allclose(read(patches[order]), found):
            return False
    return True


RIGHT = {
    "patches_of": [by_slices, by_windows, by_number, with_numpy],
    "classified": [filled, parts_first, one_by_one],
    "grid_code": [place_by_place, by_broadcast, by_index],
    "resized": [by_permute, by_matrices, channel_by_channel],
    "is_a_set": [every_pair, many_orders, neighbors],
}
WRONG = {
    "patches_of": {
        "strips": strips,
        "channels_last": channels_last,
        "turned": turned,
        "column_by_column": column_by_column,
        "upright": upright,
        "split_other_way": split_other_way,
    },
    "classified": {
        "appended": appended,
        "token_without_place": token_without_place,
        "places_of_patches": places_of_patches,
        "no_places": no_places,
        "last_read": last_read,
        "mean_read": mean_read,
    },
    "grid_code": {
        "by_columns": by_columns,
        "both_repeated": both_repeated,
        "own_counts": own_counts,
    },
    "resized": {
        "along_the_list": along_the_list,
        "reshaped_back": reshaped_back,
        "nearest": nearest,
        "token_lost": token_lost,
        "reshaped_both": reshaped_both,
    },
    "is_a_set": {
        "first_two": first_two,
        "reversed": reversed_only,
        "exactly": exactly,
        "one_is_enough": one_is_enough,
        "last_forgotten": last_forgotten,
    },
}
OUTSIDE = {
    "patches_of": [without_batch, channels_as_patches, gray],
    "classified": [mean_of_patches, no_token, places_behind, token_added],
    "grid_code": [three_axes, rows_only, alternating, multiplied],
    "resized": [bicubic, cut_off, token_averaged, token_behind],
    "is_a_set": [always, never, inside_out, rolled_only, sums_only],
}
