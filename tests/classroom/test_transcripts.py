"""What the page for teachers shows is what its commands print."""

import os
import re
import sys
from pathlib import Path

import forked
import pytest

from coursekit_classroom.glue import result
from coursekit_classroom.teach.sandbox import Isolation, best
from results.grading import Desk, play

MACHINE = {"doctor"}  # what a machine can be trusted with differs
DIFFERS = re.compile(r"\d+(?= exercises)")  # the catalogue grows


def test_the_commands_print_what_the_page_shows(tmp_path):
    if best() is not Isolation.BUBBLEWRAP:
        pytest.skip("recorded under bubblewrap, which is missing here")
    programs = forked.command(), str(Path(sys.executable).parent)
    desk = Desk(tmp_path, os.pathsep.join(programs))
    play(desk, doctor=False)
    shown = result("grading")["transcripts"]
    assert set(shown) - MACHINE == set(desk.printed)
    for name, printed in desk.printed.items():
        assert DIFFERS.sub("", printed) == DIFFERS.sub("", shown[name]), (
            f"{name} is stale: make results NAME=grading"
        )
