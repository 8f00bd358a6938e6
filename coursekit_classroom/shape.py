"""The shape that JSON of ours has, for files that people can edit."""

from typing import Any

from coursekit.files import parse_json

NUMBER = (int, float)
LARGEST = 1e9  # a number of points, of days, of percent


def read_shaped(data: bytes, shape: Any, name: str) -> Any:
    """Read JSON that has a shape.

    Args:
        data: the JSON.
        shape, name: as :func:`misfit` takes them.

    Raises:
        ValueError: it is no JSON, or a part of it, which is named, does not
            have its shape.
    """
    value = parse_json(data)
    if wrong := misfit(value, shape, name):
        raise ValueError(wrong)
    return value


def misfit(value: Any, shape: Any, name: str) -> str:
    """Which part of a JSON value does not have its shape; "" if all have.

    Args:
        value: what JSON gave.
        shape: a type, or several; a list with the shape of its items; or a
            dictionary of shapes, where a name that ends in ``?`` may be left
            out and ``...`` stands for any name.
        name: of the value.
    """
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{name}={shown(value)}"
        rest = [(v, shape[0], f"{name}[{i}]") for i, v in enumerate(value)]
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{name}={shown(value)}"
        rest = []
        for field, inner in shape.items():
            if field is ...:
                rest += [(v, inner, f"{name}.{k}") for k, v in value.items()]
                continue
            key = field.removesuffix("?")
            if key in value:
                rest.append((value[key], inner, f"{name}.{key}"))
            elif key == field:
                return f"{name} without {key!r}"
    else:
        right = isinstance(value, shape) and not isinstance(value, bool)
        if right and isinstance(value, str):  # JSON can hold lone surrogates
            right = value.encode(errors="ignore").decode() == value
        elif right:
            right = abs(value) < LARGEST  # so that it is no NaN either
        return "" if right else f"{name}={shown(value)}"
    return next(filter(None, (misfit(*one) for one in rest)), "")


def shown(value: Any) -> str:
    """The beginning of a value, in one line."""
    text = ascii(value) if isinstance(value, str) else type(value).__name__
    text = repr(value)[:20] if isinstance(value, float | int) else text
    return text[:40]
