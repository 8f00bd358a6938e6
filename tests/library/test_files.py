"""Files are whole or not there, and text is UTF-8."""

import subprocess
import sys

import pytest

from coursekit.files import locked, read_bytes, utf8, write_atomically


def test_write_atomically_keeps_usual_permissions(tmp_path):
    """A temporary file is private; the result must not be."""
    (tmp_path / "usual").write_text("x")
    write_atomically(tmp_path / "ours", "x")
    modes = {p.stat().st_mode for p in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("name", ["x.xz", "x.gz"])
def test_damaged_archive(name, tmp_path):
    (tmp_path / name).write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=f"whole: got 14 bytes in .*{name}"):
        read_bytes(tmp_path / name)


def test_half_a_surrogate_pair_is_refused():
    assert utf8("naïve 🍵") == "naïve 🍵".encode()
    with pytest.raises(ValueError, match=r"surrogate U\+D83C at index 2"):
        utf8("a \ud83c")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_a_folder_is_locked_until_its_process_ends(tmp_path):
    path = tmp_path / "r"
    code = (
        "import os, sys\nfrom coursekit.files import locked\n"
        "with locked(sys.argv[1]):\n    print('mine', flush=True)\n"
        "    sys.stdin.read()\n    os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout.readline() == b"mine\n"
        with (
            pytest.raises(ValueError, match="one process at a time"),
            locked(path),
        ):
            pass
    with locked(path):  # killed, it holds nothing
        pass
    with locked(path):
        pass
