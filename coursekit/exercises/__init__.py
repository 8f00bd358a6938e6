"""Exercises that say what is wrong: one module a chapter."""

from coursekit.exercises.core import check

__all__ = ["check"]
