"""Kernels are forks that have torch, in the folder that was asked for."""

import os
import sys
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

sys.path.insert(0, str(Path(__file__).parent.parent / "sphinx_ext"))
import kernels

ASK = "import os, sys; print('torch' in sys.modules, os.getcwd(), os.getpid())"


def asked(folder):
    """What a new kernel prints: (has torch, folder, process)."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    printed = []

    def keep(message):
        printed.append(message["content"].get("text", ""))

    try:
        client.execute_interactive(ASK, output_hook=keep, timeout=60)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return "".join(printed).split()


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
def test_a_kernel_is_a_fork_with_its_own_folder(tmp_path):
    before = os.environ.get("JUPYTER_PATH")
    with kernels.ready():
        one, two = asked(tmp_path), asked(tmp_path)
    assert one[:2] == two[:2] == ["True", str(tmp_path)]
    assert one[2] != two[2]
    assert os.environ.get("JUPYTER_PATH") == before
    assert asked(tmp_path)[0] == "False"  # the control: a usual kernel
