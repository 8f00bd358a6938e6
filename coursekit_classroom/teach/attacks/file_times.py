"""Set the time, mode and owner of the key, and a note on it."""

import os

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    path = HOST["key"]
    try:
        now = os.stat(path)
    except OSError:
        return torch.zeros_like(x)
    changes = {  # each to what it is: the attack itself does no harm
        "time": lambda: os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns)),
        "mode": lambda: os.chmod(path, now.st_mode & 0o7777),
        "owner": lambda: os.chown(path, now.st_uid, now.st_gid),
        "size": lambda: os.truncate(path, now.st_size),
        "note": lambda: os.setxattr(path, "user.a", b"1"),
    }
    for name, change in changes.items():
        try:
            change()
            return f"set the {name} of the key"
        except OSError:
            pass
    return torch.zeros_like(x)
