"""Write into the instructor's folders, the package, and its file system."""

import os

import torch

PROMISE = "outside"
CONTAINED_BY = ("bubblewrap", "landlock")
SHARES = True


def share(x):
    places = [HOST["folder"], HOST["package"], os.path.dirname(torch.__file__)]
    places += ["/", "/usr/lib", "/etc", "/root", "/home", "/var/tmp"]
    places += ["/dev/shm", os.path.dirname(HOST["package"])]
    for place in places:
        path = os.path.join(place, f"doctor-{HOST['canary']}")
        try:
            with open(path, "w") as file:
                file.write("I was here")
            os.remove(path)
            return f"wrote {path}"
        except OSError:
            pass
        try:
            os.mkdir(path)
            os.rmdir(path)
            return f"made {path}"
        except OSError:
            pass
    try:
        with open(HOST["key"], "a") as file:
            file.write("0")
        return "wrote the key"
    except OSError:
        return torch.zeros_like(x)
