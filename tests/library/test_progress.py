"""Progress bar of training."""

import subprocess
import sys

import pytest

from coursekit import training
from coursekit.training import Clock, TrainingBar


def test_only_what_is_between_start_and_stop_counts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])
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
    with TrainingBar(total=3, disable=not shown) as bar:
        bar.show(2.5, None, 1234.0)
        bar.show(2.25, 2.75, 1234.0)
        bar.show(2.0, None, 1234.0)
    said = capsys.readouterr().err
    if not shown:
        assert said == ""
        return
    assert "3/3" in said
    assert "loss 2.000, validation 2.750, 1,234 tokens/s" in said


@pytest.mark.skipif(sys.platform == "win32", reason="no such child")
@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        ("from coursekit.progress import Bar as bar", "none"),
        ("from tqdm import tqdm as bar", "some"),  # the control
    ],
)
def test_a_bar_starts_no_process(bar, expected):
    """Nor where Python forks none: on macOS, and by default since 3.14."""
    code = f"""
import multiprocessing, os
multiprocessing.set_start_method("spawn")
{bar}
bar(total=3, disable=True).close()
bar.write("a line")
try:
    print(os.waitpid(-1, os.WNOHANG) and "some")
except ChildProcessError:
    print("none")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["a line", expected]
