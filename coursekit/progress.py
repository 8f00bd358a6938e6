"""Progress bar of training."""

import math
import time
from threading import RLock

from tqdm import tqdm


class Bar(tqdm):
    """A bar that no other process writes to.

    tqdm's own lock is for processes too. Where these are not forked, as on
    macOS and since Python 3.14, it starts one that looks after the lock, and
    that complains on stderr about a training that was killed.
    """


Bar.set_lock(RLock())


class Clock:
    """Tokens a second while training, and nothing else, goes on.

    Args:
        seconds: after which the time is up; None: never.
    """

    def __init__(self, seconds: float | None) -> None:
        self.spent, self.tokens, self.began = 0.0, 0, time.perf_counter()
        self.end = self.began + (math.inf if seconds is None else seconds)

    def start(self) -> None:
        """A step begins."""
        self.began = time.perf_counter()

    def stop(self, tokens: int) -> float:
        """A step of so many tokens ends; tokens a second so far."""
        self.spent += time.perf_counter() - self.began
        self.tokens += tokens
        return self.tokens / max(self.spent, 1e-9)

    def is_over(self) -> bool:
        """True if the time limit is reached."""
        return time.perf_counter() >= self.end


class ProgressBar:
    """A progress bar with the loss, the validation loss and the speed.

    Args:
        step: done so far.
        steps: in all.
        shown: by default where stderr is a terminal.
    """

    def __init__(self, step: int, steps: int, shown: bool | None) -> None:
        self.bar = Bar(
            total=steps,
            initial=step,
            # None: tqdm itself looks whether stderr is a terminal.
            disable=None if shown is None else not shown,
            unit="step",
            dynamic_ncols=True,
        )
        self.validation = ""

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def update(
        self, loss: float, validation_loss: float | None, speed: float
    ) -> None:
        """One step further.

        Args:
            loss: of the step, in nats a token.
            validation_loss: if there was an evaluation.
            speed: in tokens a second.
        """
        if self.bar.disable:
            return
        if validation_loss is not None:
            self.validation = f"validation {validation_loss:.3f}, "
        self.bar.set_postfix_str(
            f"loss {loss:.3f}, {self.validation}{speed:,.0f} tokens/s",
            refresh=False,
        )
        self.bar.update()
