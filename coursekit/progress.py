"""A progress bar that no other process writes to."""

from threading import RLock

from tqdm import tqdm


class Bar(tqdm):
    """tqdm with a lock of this process.

    tqdm's own lock is for processes too. Where these are not forked, as on
    macOS and since Python 3.14, it starts one that looks after the lock, and
    that complains on stderr about a training that was killed.
    """


Bar.set_lock(RLock())
