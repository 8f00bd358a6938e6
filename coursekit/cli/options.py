"""Options from the fields of a configuration, with their help."""

import argparse
import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, get_args

from coursekit import config
from coursekit.config import Config
from coursekit.train_config import RENAMED, TRAIN_CHOICES

CHOICES = config.CHOICES | TRAIN_CHOICES


def field_help(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass, base classes included."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name = field.target.id  # type: ignore[union-attr]
                texts[name] = inspect.cleandoc(ast.literal_eval(text.value))
    return texts


def add_fields(
    parser: Any,
    kind: type[Config],
    defaults: dict[str, Any],
    skip: Sequence[str] = (),
) -> None:
    """Add an option for each field of a configuration.

    An option that is not given leaves no trace in the parsed arguments, so
    that --resume can tell what was asked for.
    """
    texts = field_help(kind)
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        default = defaults.get(field.name, field.default)
        text = texts[field.name].replace("%", "%%")
        if "[default" not in text:
            text += f" [default: {shown(default)}]"
        flags = ["--" + n.replace("_", "-") for n in names_of(field.name)]
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        choices = CHOICES.get(field.name)
        if (value_type := plain_type(field.type)) is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif choices:
            options["choices"] = choices
        else:
            options |= {"type": value_type, "metavar": "N"}
        parser.add_argument(*flags, dest=field.name, **options)


def names_of(field: str) -> list[str]:
    """Names of a field's option: an older one comes first."""
    older = [old for old, new in RENAMED.items() if new == field]
    return [*older, field]


def plain_type(kind: Any) -> Any:
    """``int`` for ``int | None``."""
    if isinstance(kind, UnionType):
        return next(k for k in get_args(kind) if k is not NoneType)
    return kind


def shown(value: Any) -> str:
    """A default as it is typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def given(args: argparse.Namespace, kind: type[Config]) -> dict[str, Any]:
    """The fields of a configuration that the command line names."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {k: v for k, v in vars(args).items() if k in names}
