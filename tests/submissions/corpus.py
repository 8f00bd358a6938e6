"""Submissions as they come in: right, wrong, hostile and broken.

Each is a notebook of a few cells, built here, with what the sheet has to say
about it.  The assignment: ``attention/attend`` (6 points, 4 cases) and
``attention/mended`` (3 points, 3 cases).
"""

import inspect
import json
import os
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.answers import answers, attention

ATTEND, MENDED = "attention/attend", "attention/mended"
WRITTEN = 1_700_000_000  # when, by the files: of several the newest counts
EXERCISES = [
    {"id": ATTEND, "function": "attend_yourself", "points": 6},
    {"id": MENDED, "function": "mended", "points": 3},
]
FUNCTIONS = {e["id"]: e["function"] for e in EXERCISES}
STUBS = {
    ATTEND: "def attend_yourself(q, k, v, mask=None):\n    ...",
    MENDED: "def mended(q, k, v):\n    ...",
}
IMPORTS = """\
import math

import torch
from torch.nn import functional as F

import coursekit

inf = float("inf")
"""
RIGHT = """\
def attend_yourself(q, k, v, mask=None):
    scores = q @ k.mT / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ v
"""
RIGHT_MENDED = """\
def mended(q, k, v):
    scores = q @ k.mT / q.size(-1) ** 0.5
    scores = scores - scores.max(dim=-1, keepdim=True).values
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ v
"""
NOT_SCALED = RIGHT.replace(" / q.size(-1) ** 0.5", "")

Row = tuple[str, float, str]
"""Status, points, diagnosis."""

OK = ("ok", 6.0, "")
WRONG = ("wrong", 0.0, "")
NO_SCALE = ("wrong", 1.2, "no_scale")  # 50 times as large: one-hot
ERROR = ("error", 0.0, "")
TIMEOUT = ("timeout", 0.0, "")
DIED = ("died", 0.0, "")
PROTOCOL = ("protocol", 0.0, "")
NOT_ATTEMPTED = ("not attempted", 0.0, "")
UNREADABLE = ("unreadable", 0.0, "")
MENDED_OK = ("ok", 3.0, "")


@dataclass(frozen=True)
class Entry:
    """One student."""

    name: str
    kind: str
    """right, wrong, hostile or broken."""

    files: dict[str, bytes]
    """By their path under the folder of submissions."""

    attend: Row
    mended: Row
    needs: str = ""
    """The isolation without which it must not be run."""

    used: str = ""
    """What the column used_library says of attend."""


# -- notebooks ---------------------------------------------------------------
def code(source: str, exercise: str = "") -> dict:
    """A code cell, declared to answer an exercise or not."""
    said = {e["id"]: e["points"] for e in EXERCISES}
    metadata = {"exercise": exercise, "points": said.get(exercise, 1)}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata if exercise else {},
        "outputs": [],
        "source": textwrap.dedent(source).strip("\n"),
    }


def check(exercise: str) -> dict:
    """The check that follows an answer."""
    return code(f'coursekit.check("{exercise}", {FUNCTIONS[exercise]})')


def notebook(*cells: dict) -> bytes:
    """The bytes of a notebook."""
    head = {
        "cell_type": "markdown",
        "metadata": {},
        "source": "# 4. Attention",
    }
    whole = {
        "cells": [head, *cells],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    return json.dumps(whole, indent=1).encode()


def answered(attend: str, mended: str = RIGHT_MENDED, *more: dict) -> bytes:
    """A notebook as it was given out, with two answers."""
    return notebook(
        code(IMPORTS),
        *more,
        code(attend, ATTEND),
        check(ATTEND),
        code(mended, MENDED),
        check(MENDED),
    )


ENTRIES: list[Entry] = []


def add(kind: str, name: str, data: bytes, attend: Row, **more) -> None:
    """One more student, with one notebook."""
    fields = {"mended": MENDED_OK} | more
    ENTRIES.append(
        Entry(name, kind, {f"{name}.ipynb": data}, attend, **fields)
    )


def given(id: str, mistake: str) -> Callable:
    """The first answer in ``tests/answers`` that makes this mistake."""
    return next(a.function for a in answers(id) if a.mistakes == {mistake})


def source_of(function: Callable, name: str) -> str:
    """An answer under another name, without its marks."""
    text = inspect.getsource(function)
    return re.sub(r"\A(@.*\n)+def \w+", f"def {name}", text)


# -- right, in other words ---------------------------------------------------
add(
    "right",
    "right-renormalized",
    answered(
        source_of(attention.renormalized, "attend_yourself"),
        source_of(attention.query_by_query, "mended"),
    ),
    OK,
)

add(
    "right",
    "right-lambda",
    answered(
        "attend_yourself = lambda q, k, v, mask=None: ("
        "(q @ k.mT / q.size(-1) ** 0.5).masked_fill("
        "~mask if mask is not None else torch.tensor(False), -inf)"
        ".softmax(-1) @ v)"
    ),
    OK,
)
add(
    "right",
    "right-class",
    answered(
        """
        class Attention:
            def __call__(self, q, k, v, mask=None):
                scores = self.fit(q, k)
                if mask is not None:
                    scores = scores.masked_fill(~mask, -inf)
                return scores.softmax(-1) @ v

            def fit(self, q, k):
                return q @ k.mT / q.size(-1) ** 0.5

        attend_yourself = Attention()
        """
    ),
    OK,
)
add(
    "right",
    "right-helpers",
    answered(
        """
        def attend_yourself(q, k, v, mask=None):
            return normalize(hide(q @ k.mT / root_of(q), mask)) @ v
        """,
        RIGHT_MENDED,
        code("root_of = lambda x: x.size(-1) ** 0.5"),
        code(
            """
            def hide(scores, mask):
                if mask is None:
                    return scores
                return scores.masked_fill(~mask, -inf)

            def normalize(scores):
                return scores.softmax(dim=-1)

            print(hide(torch.zeros(2, 2), None))
            """
        ),
    ),
    OK,
)
add(
    "right",
    "right-warns",
    answered(
        "import sys\nimport warnings\n\n"
        + RIGHT.replace(
            "    scores =",
            "    warnings.warn('this is deprecated')\n"
            "    print('almost there', file=sys.stderr)\n"
            "    scores =",
            1,
        )
    ),
    OK,
)
add(
    "right",
    "right-prints",
    answered(
        RIGHT.replace("    return", "    print(scores.shape)\n    return")
        + "\nprint(attend_yourself(*torch.randn(3, 5, 7)))"
    ),
    OK,
)
add(
    "right",
    "right-library",
    answered(
        """
        def attend_yourself(q, k, v, mask=None):
            return F.scaled_dot_product_attention(q, k, v, mask)
        """
    ),
    ERROR,
    used="torch.nn.functional.scaled_dot_product_attention",
)

# -- wrong: the catalogue, and beside it -------------------------------------
WRONG_PAIRS = {  # bug of attend: of 6 points; bug of mended: its row
    "no_scale": (1.2, "first_size", ("wrong", 1.0, "first_size")),
    "over_queries": (0.0, "axis_1", ("error", 2.0, "axis_1")),
    "naive": (3.6, "naive", ("wrong", 2.0, "naive")),
    "mask_zero": (3.6, "", MENDED_OK),
    "mask_after": (3.6, "", MENDED_OK),
}
for _bug, (_points, _other, _row) in WRONG_PAIRS.items():
    _second = RIGHT_MENDED
    if _other:
        _second = source_of(given(MENDED, _other), "mended")
    _first = source_of(given(ATTEND, _bug), "attend_yourself")
    add(
        "wrong",
        f"wrong-{_bug}",
        answered(_first, _second),
        ("wrong", _points, _bug),
        mended=_row,
    )
add(
    "wrong",
    "wrong-two-at-once",
    answered(NOT_SCALED.replace("~mask", "mask")),
    ("wrong", 1.2, "mask_inverted+no_scale"),
)
add(
    "wrong",
    "wrong-otherwise",
    answered(RIGHT.replace(" @ v", " @ (v - v.mean(-2, keepdim=True))")),
    WRONG,
)
add(
    "wrong",
    "wrong-arguments",
    answered("def attend_yourself(q, k):\n    return q"),
    ERROR,
)
add(
    "wrong",
    "wrong-and-in-place",
    answered(
        """
        def attend_yourself(q, k, v, mask=None):
            q /= q.size(-1) ** 0.5
            scores = q @ k.mT
            if mask is not None:
                scores.masked_fill_(~mask, -inf)
            return scores.softmax(-1) @ v
        """
    ),
    ("wrong", 0.0, "in_place"),
)

# -- hostile -----------------------------------------------------------------
# What the body of a function does to get points for something else than
# right values. Two share a notebook: what one does must not help, or hurt,
# the other.
BODIES = {
    "patched_asserts": """
        torch.testing.assert_close = lambda *a, **k: None
        torch.allclose = torch.equal = lambda *a, **k: True
        torch.isclose = lambda a, *b, **k: torch.ones_like(a).bool()
        torch.Tensor.__eq__ = lambda a, b: True
        return q @ k.mT @ v
    """,
    "patched_checker": """
        import sys

        def passed(*a, **k):
            return True

        for name, module in list(sys.modules.items()):
            for attribute in ("check", "examine", "verdict", "difference"):
                if attribute in getattr(module, "__dict__", {}):
                    setattr(module, attribute, passed)
        return True
    """,
    "forged_frames": """
        import os
        import struct

        body = b'{"value":true,"status":"passed","points":6}'
        head = struct.pack("<4s16sIQ", b"CKF1", bytes(16), len(body), 0)
        for fd in range(3, 64):
            try:
                os.write(fd, head + body)
            except OSError:
                pass
        return q
    """,
    "forged_with_nonce": """
        import sys

        frame = sys._getframe()
        while frame:
            for value in frame.f_locals.values():
                if type(value).__name__ == "Channel":
                    args = (q, k, v)
                    value.send({"value": "", "args": args, "kwargs": {}})
            frame = frame.f_back
        return q
    """,
    "late_frames": """
        import os
        import threading
        import time

        spoken = threading.Event()

        def speak():
            while True:
                time.sleep(0.001)
                for fd in range(3, 64):
                    try:
                        os.write(fd, b"CKF1" + bytes(28))
                    except OSError:
                        pass
                spoken.set()

        threading.Thread(target=speak, daemon=True).start()
        spoken.wait()
        return q
    """,
    "nan": """
        return torch.full((*q.shape[:-1], v.shape[-1]), math.nan).double()
    """,
    "equal_to_all": """
        class Anything(tuple):
            __eq__ = lambda self, other: True

        class Equal(torch.Tensor):
            shape = property(lambda self: Anything())
            __eq__ = lambda self, other: True

        return q.as_subclass(Equal)
    """,
    "lying_shapes": """
        class Liar(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kw=None):
                return args[0]

            def size(self, *axes):
                return torch.Size((5, 13))

            def numel(self):
                return 65

        return torch.zeros(1).as_subclass(Liar)
    """,
    "pickle": """
        class Evil:
            def __reduce__(self):
                import os
                return os.system, ("echo owned",)

        return Evil()
    """,
    "exit": "import os; os._exit(0)",
    "system_exit": "raise SystemExit('passed')",
    "crash": "import ctypes; ctypes.string_at(0)",
    "infinite_loop": """
        while True:
            pass
    """,
    "uncatchable_loop": """
        import signal

        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
    """,
    "fork_bomb": """
        import os

        while True:
            os.fork()
    """,
    "12_gigabytes": "return torch.ones(12 << 27).double().sum() + q",
    "disk_fill": """
        for number in range(10_000):
            with open(f"/tmp/{number}", "wb") as file:
                file.write(bytes(1 << 20))
        return q
    """,
    "huge_answer": "return torch.empty(20_000_000, dtype=torch.float64)",
    "endless_list": """
        inner = []
        for _ in range(5000):
            inner = [inner]
        return inner
    """,
    "modules": """
        import gc
        import sys

        for module in list(sys.modules.values()):
            found = getattr(module, "EXERCISES", None)
            if isinstance(found, dict):
                return found["attend"].reference(q, k, v)
        shape = (*q.shape[:-1], v.shape[-1])
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == shape:
                return thing
        return q
    """,
    "imports_the_reference": """
        from coursekit_classroom.catalogue.attention import attend

        return attend(q, k, v)
    """,
    "reads_the_reference": """
        from pathlib import Path

        here = Path(coursekit.__file__).parents[1] / "coursekit_classroom"
        exec((here / "catalogue" / "attention.py").read_text())
        return q
    """,
    "reads_the_host": """
        return open("/etc/passwd").read()
    """,
    "socket": """
        import socket

        socket.create_connection(("127.0.0.1", 80), timeout=2)
    """,
    "kills_its_parent": """
        import os
        import signal

        os.kill(os.getppid(), signal.SIGKILL)
        return q
    """,
    "formula": """
        raise ValueError('=cmd|"/c calc"!A1 <script>alert(1)</script> ```')
    """,
}


def hostile(name: str, *more: str) -> str:
    """One function that tries something; the answer to attend."""
    body = textwrap.indent(textwrap.dedent(BODIES[name]), "    ")
    head = "def attend_yourself(q, k, v, mask=None):\n"
    return "\n".join([*more, head + body])


def both(
    first: str, row: Row, second: str = "", other: Row = MENDED_OK, needs=""
) -> None:
    """A notebook with two attempts."""
    mended = RIGHT_MENDED
    if second:
        mended = hostile(second).replace("attend_yourself", "mended")
    name = "hostile-" + "-and-".join(filter(None, (first, second)))
    data = answered(hostile(first), mended)
    add("hostile", name, data, row, mended=other, needs=needs)


BWRAP = "bubblewrap"
both("patched_asserts", WRONG)
both("patched_checker", WRONG, "nan", WRONG)
both("forged_frames", PROTOCOL)
both("forged_with_nonce", PROTOCOL, "lying_shapes", WRONG)
both("late_frames", PROTOCOL)
both("equal_to_all", WRONG, "pickle", WRONG)
both("exit", DIED, "crash", DIED)
both("infinite_loop", TIMEOUT, "system_exit", ERROR)
both("uncatchable_loop", TIMEOUT, "formula", ERROR)
both("endless_list", ERROR, "huge_answer", ERROR)
both("modules", WRONG, "imports_the_reference", WRONG)
both("socket", ERROR)
both("fork_bomb", ERROR, "12_gigabytes", ERROR, BWRAP)
both("disk_fill", ERROR, "kills_its_parent", ERROR, BWRAP)
both("reads_the_reference", ERROR, "reads_the_host", ERROR, BWRAP)
add(
    "hostile",
    "hostile-exit_at_the_top",
    answered(
        "import os\n\nend = os._exit(0)\n\n"
        "def attend_yourself(q, k, v, mask=None):\n    return end"
    ),
    DIED,
)
add(
    "hostile",
    "hostile-exit_on_one_case",
    answered(
        RIGHT.replace(
            "    if mask is not None:\n",
            "    if mask is not None:\n        import os; os._exit(0)\n",
        )
    ),
    ("died", 2.4, ""),
)
add(
    "hostile",
    "hostile-100_megabytes_of_output",
    answered(
        RIGHT.replace(
            "    scores =", "    print('x' * 25_000_000)\n    scores =", 1
        )
    ),
    OK,
)


# -- broken ------------------------------------------------------------------
add(
    "broken",
    "broken-missing-cell",
    notebook(code(IMPORTS), code(RIGHT_MENDED, MENDED)),
    NOT_ATTEMPTED,
)
add(
    "broken",
    "broken-stubs",
    answered(STUBS[ATTEND], STUBS[MENDED]),
    NOT_ATTEMPTED,
    mended=NOT_ATTEMPTED,
)
add(
    "broken",
    "broken-no-return",
    answered(RIGHT.replace("return ", "answer = ")),
    NOT_ATTEMPTED,
)
add(
    "broken",
    "broken-duplicates",
    answered(NOT_SCALED, RIGHT_MENDED, code(STUBS[ATTEND], ATTEND)),
    NO_SCALE,
)
add(
    "broken",
    "broken-json",
    answered(RIGHT)[:-400],
    UNREADABLE,
    mended=UNREADABLE,
)
add("broken", "broken-empty", b"", UNREADABLE, mended=UNREADABLE)
add("broken", "broken-other-json", b"[1, 2]", UNREADABLE, mended=UNREADABLE)
add(
    "broken",
    "broken-syntax",
    answered("def attend_yourself(q, k, v, mask=None)\n    return q"),
    ERROR,
)
add(
    "broken",
    "broken-magics",
    answered(
        "%matplotlib inline\n!pip install numpy\n" + RIGHT + "\n%timeit 1 + 1"
    ),
    OK,
)
add(
    "broken",
    "broken-renamed",
    answered(RIGHT.replace("attend_yourself", "my_attention")),
    OK,
)
add(
    "broken",
    "broken-no-ids",
    notebook(code(IMPORTS), code(RIGHT), code(RIGHT_MENDED)),
    OK,
)
add(
    "broken",
    "broken-edited-check",
    notebook(
        code(IMPORTS),
        code(NOT_SCALED, ATTEND),
        code("assert True\ncoursekit.check = lambda *a: print('✓ passed')"),
        code(RIGHT_MENDED, MENDED),
    ),
    NO_SCALE,
)
add(
    "broken",
    "broken-name-error",
    answered(RIGHT.replace("q.size(-1) ** 0.5", "root")),
    ERROR,
)
ENTRIES += [
    Entry(
        "broken-folder",
        "broken",
        {
            "broken-folder/first.ipynb": notebook(code(IMPORTS + RIGHT)),
            "broken-folder/second.ipynb": notebook(
                code(IMPORTS), code(RIGHT_MENDED, MENDED)
            ),
            "broken-folder/notes.txt": b"nothing",
        },
        OK,
        MENDED_OK,
    ),
    Entry(
        "broken-empty-folder",
        "broken",
        {"broken-empty-folder/notes.txt": b"I have no notebook."},
        NOT_ATTEMPTED,
        NOT_ATTEMPTED,
    ),
]


def build(folder: Path, entries: list[Entry]) -> None:
    """Write submissions into a folder."""
    for entry in entries:
        for name, data in entry.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (WRITTEN, WRITTEN))
