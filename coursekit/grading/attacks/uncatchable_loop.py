"""Never return, and catch whatever would end it."""

PROMISE = "ends"
CONTAINED_BY = ("bubblewrap", "landlock", "none")


def share(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
