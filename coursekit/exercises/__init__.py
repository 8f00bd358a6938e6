"""Exercises that say what is wrong: one module a chapter."""

from coursekit.exercises.checker import check

__all__ = ["check"]
