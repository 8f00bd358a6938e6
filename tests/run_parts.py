"""Run the parts of `make test` in order; say what each took and skipped."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PARTS = {
    "lint": "ruff: style and format",
    "types": "mypy: types of the package",
    "unit": "pytest: the package, shapes enforced",
    "build": "the book, built clean, every chapter executed",
    "compare": "nbval: every chapter once more, outputs compared",
    "pages": "pytest: the book's pipeline, and its pages in Chromium",
}


def run(part):
    """Run one part, showing its output; return (ok, seconds, skipped)."""
    start, skipped = time.perf_counter(), 0
    with subprocess.Popen(
        ["make", "--no-print-directory", part],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf8",
        errors="replace",
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            # pytest's closing line: "12 passed, 3 skipped in 4.56s"
            closing = re.search(r"(\d+) skipped.* in [\d.]+s", line)
            if closing:
                skipped += int(closing.group(1))
    return process.returncode == 0, time.perf_counter() - start, skipped


def main():
    """Run every part, also after one has failed; 1 if any failed."""
    for stale in Path("_build").glob("*"):
        if stale.is_dir():
            shutil.rmtree(stale)
    rows = []
    for part, what in PARTS.items():
        print(f"\n== {part}: {what}", flush=True)
        rows.append((part, *run(part)))
    print("\npart       seconds")
    for part, ok, seconds, skipped in rows:
        note = "" if ok else "  FAILED"
        note += f"  {skipped} skipped" if skipped else ""
        print(f"{part:10} {seconds:7.1f}{note}")
    failed = [part for part, ok, *_ in rows if not ok]
    total = sum(seconds for _, _, seconds, _ in rows)
    skipped = sum(skipped for *_, skipped in rows)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    where = "CI" if os.environ.get("CI") == "true" else "local"
    print(f"total      {total:7.1f}  {where}: {verdict}, {skipped} skipped")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
