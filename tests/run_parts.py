"""Run `make` targets, some at the same time; say what each took and skipped.

    python tests/run_parts.py lint,types unit chapters html,compare pages

runs the five groups in order, and the targets of a group at the same time,
each on what cores the others leave.
"""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def run(part, shown):
    """Run one target; return (ok, seconds, skipped).

    ``shown`` prints a line of its output as it comes; without it, the output
    is printed at the end.
    """
    start, skipped, kept = time.perf_counter(), 0, []
    with subprocess.Popen(
        ["make", "--no-print-directory", part],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf8",
        errors="replace",
    ) as process:
        for line in process.stdout:
            if shown:
                print(line, end="", flush=True)
            else:
                kept.append(line)
            # pytest's closing line: "12 passed, 3 skipped in 4.56s"
            closing = re.search(r"(\d+) skipped.* in [\d.]+s", line)
            if closing:
                skipped += int(closing.group(1))
    if not shown:
        print(f"\n== {part}\n{''.join(kept)}", end="", flush=True)
    return process.returncode == 0, time.perf_counter() - start, skipped


def main(groups):
    """Run every group, also after one has failed; 1 if any part failed."""
    start, rows = time.perf_counter(), []
    for group in groups:
        parts = group.split(",")
        print(f"\n== {' and '.join(parts)}", flush=True)
        with ThreadPoolExecutor(len(parts)) as pool:
            done = pool.map(run, parts, [len(parts) == 1] * len(parts))
            rows += [(p, *d) for p, d in zip(parts, done, strict=True)]
    print("\npart       seconds")
    for part, ok, seconds, skipped in rows:
        note = "" if ok else "  FAILED"
        note += f"  {skipped} skipped" if skipped else ""
        print(f"{part:10} {seconds:7.1f}{note}")
    failed = [part for part, ok, *_ in rows if not ok]
    total = time.perf_counter() - start
    skipped = sum(skipped for *_, skipped in rows)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    where = "CI" if os.environ.get("CI") == "true" else "local"
    print(f"total      {total:7.1f}  {where}: {verdict}, {skipped} skipped")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
