"""Checks of exercises: they say what is wrong with an answer."""

from coursekit_classroom.check.checker import check

__all__ = ["check"]
