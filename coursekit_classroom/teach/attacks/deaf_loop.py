"""Ignore every signal, catch every exception, and never return."""

import contextlib
import signal

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
