"""Checks of exercises: they say what is wrong with an answer."""

from coursekit.classroom.check.checker import check

__all__ = ["check"]
