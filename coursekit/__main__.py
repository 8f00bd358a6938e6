"""``python -m coursekit``: see :mod:`coursekit.cli`."""

import os
import sys

if (
    __name__ == "__main__"
    and not sys.flags.safe_path
    and sys.path[0] != os.path.dirname(os.path.dirname(__file__))
):
    # The current folder, which may be one with students' submissions.
    del sys.path[0]

from coursekit.cli import main

if __name__ == "__main__":
    sys.exit(main())
