"""Kernels are forks that have torch, in the folder that was asked for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from jupyter_client.manager import start_new_kernel
from patience import PATIENCE, comes

sys.path.insert(0, str(Path(__file__).parents[2] / "sphinx_ext"))
import kernels

ASK = "import os, sys; print('torch' in sys.modules, os.getcwd(), os.getpid())"
DRAW = """\
from coursekit_classroom import figures
figures.new_figure()[1][0].plot([1, 2]);
"""


def run(code, **options):
    """What the outputs of a new kernel contain."""
    manager, client = start_new_kernel(kernel_name="python3", **options)
    contents = []

    def keep(message):
        contents.append(message["content"])

    try:
        client.execute_interactive(code, output_hook=keep, timeout=PATIENCE)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return contents


def asked(folder):
    """What a new kernel prints: (has torch, folder, process)."""
    contents = run(ASK, cwd=str(folder))
    return "".join(c.get("text", "") for c in contents).split()


def ended(*processes):
    """Wait until processes have ended."""
    gone = comes(lambda: not any(one.exists() for one in processes))
    assert gone, "it goes on"


def test_a_figure_is_encoded_as_it_is_asked_for(monkeypatch):
    found = {}
    with kernels.ready():
        for kind in ("", "svg", "none"):
            monkeypatch.setenv("COURSEKIT_FIGURES", kind)
            [shown] = [c["data"] for c in run(DRAW) if "data" in c]
            assert shown.pop("text/plain").startswith("<Figure")
            found[kind] = sorted(shown)
    assert found == {
        "": ["image/png"],
        "svg": ["image/png", "image/svg+xml"],
        "none": [],
    }


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
def test_a_kernel_is_a_fork_with_its_own_folder(tmp_path, monkeypatch):
    for name in ("JUPYTER_PATH", kernels.STARTED):  # of `make test`
        monkeypatch.delenv(name, raising=False)
    before = os.environ.get("JUPYTER_PATH")
    with kernels.ready():
        server = os.environ["JUPYTER_PATH"]
        with kernels.ready():  # in what is started meanwhile
            assert os.environ["JUPYTER_PATH"] == server
        one, two = asked(tmp_path), asked(tmp_path)
    assert one[:2] == two[:2] == ["True", str(tmp_path)]
    assert one[2] != two[2]
    assert os.environ.get("JUPYTER_PATH") == before
    assert asked(tmp_path)[0] == "False"  # the control: a usual kernel


BUILD = """
import kernels, time
from jupyter_client.manager import start_new_kernel
with kernels.ready():
    manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive("import os; print(os.getpid(), flush=True)")
    print(manager.provisioner.pid, flush=True)
    time.sleep(100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_kernel_outlives_what_started_it(number):
    folder = Path(kernels.__file__).parent
    with subprocess.Popen(
        [sys.executable, "-c", BUILD], cwd=folder, stdout=subprocess.PIPE
    ) as build:
        lines = build.stdout.readline(), build.stdout.readline()
        build.send_signal(number)
    ended(*(Path("/proc", line.decode().strip()) for line in lines))


# -- programs that tests start: forked.py ------------------------------------
def test_a_fork_is_a_python_with_its_words_and_exit_code():
    code = "import sys, os; print(sys.argv, os.environ['IT']); sys.exit(7)"
    for python in (forked.python(), [sys.executable]):  # the same
        done = subprocess.run(
            [*python, "-c", code, "a b", "c"],
            env=os.environ | {"IT": "is"},
            capture_output=True,
            text=True,
        )
        said = done.returncode, done.stdout, done.stderr
        assert said == (7, "['-c', 'a b', 'c'] is\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
def test_a_program_ends_with_its_client():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(10**6)"
    with subprocess.Popen(
        [*forked.python(), "-c", code], stdout=subprocess.PIPE
    ) as client:
        program = Path("/proc", str(int(client.stdout.readline())))
        assert program.exists()
        client.kill()
    ended(program)
