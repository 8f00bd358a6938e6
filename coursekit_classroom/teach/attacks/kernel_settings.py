"""Open what the kernel takes its settings from for writing."""

import os

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    names = ("core_pattern", "modprobe", "hostname", "ns_last_pid")
    places = [f"/proc/sys/kernel/{name}" for name in names]
    places += ["/proc/sysrq-trigger", "/proc/self/oom_score_adj"]
    for place in places:
        try:  # opened alone: the attack itself does no harm
            os.close(os.open(place, os.O_WRONLY))
            return f"could write {place}"
        except OSError:
            pass
    return torch.zeros_like(x)
