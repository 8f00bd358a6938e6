"""Side by side with peers: the same work, interleaved, in one process.

``python -m benchmarks --help`` says how; book/about/speed.md says what.
"""
