"""How far a training is, and how fast."""

import pytest

from coursekit import progress
from coursekit.progress import Clock, ProgressBar


def test_only_what_is_between_start_and_stop_counts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    clock = Clock(seconds=9.0)
    for tokens, expected in ((30, 15.0), (10, 10.0)):
        now[0] += 1.0  # a look at the validation split
        clock.start()
        now[0] += 2.0
        assert clock.stop(tokens) == pytest.approx(expected)
    assert not clock.is_over()
    now[0] = 9.0
    assert clock.is_over()
    assert not Clock(seconds=None).is_over()


@pytest.mark.parametrize("shown", [True, False])
def test_what_a_bar_shows(capsys, shown):
    with ProgressBar(0, 3, shown) as bar:
        bar.update(2.5, None, 1234.0)
        bar.update(2.25, 2.75, 1234.0)
        bar.update(2.0, None, 1234.0)
    said = capsys.readouterr().err
    if not shown:
        assert said == ""
        return
    assert "3/3" in said
    assert "loss 2.000, validation 2.750, 1,234 tokens/s" in said
