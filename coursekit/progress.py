"""A progress bar that no other process writes to."""

from threading import RLock

from tqdm import tqdm


class Bar(tqdm):
    """tqdm with the loss, the validation loss and the speed.

    Its lock is of this process.  tqdm's own is for processes too: where these
    are not forked, as on macOS and since Python 3.14, it starts one that
    looks after the lock, and that complains on stderr about a training that
    was killed.
    """

    validation = ""

    def show(
        self, loss: float, validation_loss: float | None, speed: float
    ) -> None:
        """One step further.

        Args:
            loss: of the step, in nats per token.
            validation_loss: if there was an evaluation.
            speed: in tokens per second.
        """
        if self.disable:
            return
        if validation_loss is not None:
            self.validation = f"validation {validation_loss:.3f}, "
        self.set_postfix_str(
            f"loss {loss:.3f}, {self.validation}{speed:,.0f} tokens/s",
            refresh=False,
        )
        self.update()


Bar.set_lock(RLock())
