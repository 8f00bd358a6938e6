"""Contestants: adapters to the public interfaces of each library.

An adapter takes a :class:`~benchmarks.contest.Task` and the settings, and
returns a :class:`~benchmarks.contest.Model` (kinds gpt and pairs) or a
function (kinds learn and encode).  Peers are imported when they are built.
"""
