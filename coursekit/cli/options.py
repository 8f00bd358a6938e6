"""Options from the fields of a dataclass, with their help."""

import argparse
import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from itertools import pairwise
from types import MappingProxyType, NoneType
from typing import Annotated, Any, get_args, get_origin

from coursekit.config import Config

FLAG = {"action": "store_true"}


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
    kind: type,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    skip: Sequence[str] = (),
) -> None:
    """Add an option for each field of a dataclass.

    A field without a default is an option that must be given.  An option of
    a configuration that is not given leaves no trace in the parsed
    arguments, so that --resume can tell what was asked for.
    """
    is_config = issubclass(kind, Config)
    texts = field_help(kind)
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        default = defaults.get(field.name, field.default)
        limits = kind.limits(field.name) if issubclass(kind, Config) else {}
        options = taken_as(field.type, is_config, limits.get("choices"))
        text = texts[field.name].replace("%", "%%")
        is_told = default in (None, MISSING) or "[default" in text
        if not is_told and options != FLAG:
            text += f" [default: {shown(default)}]"
        options["default"] = argparse.SUPPRESS if is_config else default
        options |= {"required": default is MISSING, "help": text}
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, dest=field.name, **options)


def taken_as(kind: Any, is_config: bool, choices: Any) -> dict[str, Any]:
    """argparse's settings for an option, by the type of its field.

    ``Annotated[float, "T"]`` is a number that the help calls T.
    """
    metavar = "N"
    if get_origin(kind) is Annotated:
        kind, metavar = get_args(kind)
    if NoneType in get_args(kind):
        kind = get_args(kind)[0]
    if kind is bool:
        if not is_config:
            return dict(FLAG)
        return {"action": argparse.BooleanOptionalAction}
    if choices or get_args(kind):
        return {"choices": tuple(choices or get_args(kind))}
    return {"type": kind, "metavar": metavar}


def shown(value: Any) -> str:
    """A default as it is typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def named_fields(
    args: argparse.Namespace, kind: type[Config]
) -> dict[str, Any]:
    """The fields of a configuration that the command line names."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {k: v for k, v in vars(args).items() if k in names}
