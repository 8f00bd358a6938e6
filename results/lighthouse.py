"""Lighthouse scores of the built book: a page of each kind, on a phone.

The pages are served gzipped by HTTP from this machine. Lighthouse's settings
are its own, a phone with a slow processor and network, simulated. Scores fall
where the machine is busy: its load before the first run, and Lighthouse's own
gauge of its speed, are written down with them. Scores are in percent, times
in milliseconds. Lighthouse needs Node, and is no dependency of the book:

    npm install --prefix .venv/lighthouse lighthouse@12.8.2
"""

import functools
import gzip
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from results.live import program
from results.record import ROOT, options, record

VERSION = "12.8.2"  # the last that runs on Node 18; 13 wants 22.19
INSTALL = f"npm install --prefix .venv/lighthouse lighthouse@{VERSION}"
LIGHTHOUSE = ROOT / ".venv/lighthouse/node_modules/.bin/lighthouse"
HTML = ROOT / "_build" / "html"
HEAVIEST = "the heaviest page of a chapter"
PAGES = {
    "the first page, with a live figure": "book/index",
    "a long chapter": "book/01_tokenizer",
    "a chapter with live figures": "book/04_attention",
    "the walk": "book/walk",
    "the glossary": "book/about/glossary",
    "a page of code": "book/minimal",
}
GOALS = {  # percent, at least
    "performance": 85,
    "accessibility": 98,
    "best-practices": 98,
    "seo": 98,
}
AUDITS = [  # of which the first score is made
    *("first-contentful-paint", "largest-contentful-paint"),
    *("speed-index", "total-blocking-time", "cumulative-layout-shift"),
]


parser = options(__doc__, times=3)


@functools.cache
def gzipped(path: Path) -> bytes:
    """A file as a server sends it."""
    return gzip.compress(path.read_bytes(), mtime=0)


class Server(http.server.SimpleHTTPRequestHandler):
    """Serve files gzipped, over connections that stay, and say nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = gzipped(path)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, on a free port of this machine."""
    handler = functools.partial(Server, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def heaviest(folder: Path) -> str:
    """The page of a chapter for which a server sends most."""
    pages = folder.glob("book/**/[0-9][0-9]_*.html")
    page = max(pages, key=lambda path: len(gzipped(path)))
    return page.relative_to(folder).with_suffix("").as_posix()


def lighthouse() -> str:
    """The program, of the version that the scores are of."""
    found = os.environ.get("LIGHTHOUSE", str(LIGHTHOUSE))
    try:
        version = subprocess.check_output([found, "--version"], text=True)
    except OSError:
        version = f"no program at {found}"
    if version.strip() != VERSION:
        raise SystemExit(
            f"Scores are compared for Lighthouse {VERSION}: got "
            f"{version.strip()}. {INSTALL}, or set LIGHTHOUSE to the program."
        )
    return found


def audit(tool: str, address: str) -> dict[str, Any]:
    """Lighthouse's scores of a page in one run."""
    command = [tool, address, "--quiet", "--output=json"]
    command += ["--chrome-flags=--headless --no-sandbox --disable-gpu"]
    command += [f"--only-categories={','.join(GOALS)}"]
    env = os.environ | {"CHROME_PATH": program() or ""}
    return dict(json.loads(subprocess.check_output(command, env=env)))


def spread(found: Sequence[float]) -> dict[str, float]:
    """The median, the least and the most."""
    return {"median": median(found), "least": min(found), "most": max(found)}


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores in percent, and what they are made of, of several runs."""
    scores = {
        name: [round(100 * run["categories"][name]["score"]) for run in runs]
        for name in GOALS
    }
    parts = {
        name: [round(run["audits"][name]["numericValue"], 3) for run in runs]
        for name in AUDITS
    }
    return {name: spread(found) for name, found in (scores | parts).items()}


def main() -> None:
    """Measure and write down."""
    args = parser.parse_args()
    tool = lighthouse()
    if not (HTML / "book/index.html").exists():
        raise SystemExit(
            f"The built book is measured: got none in {HTML}. "
            "Run `make book` first."
        )
    pages = PAGES | {HEAVIEST: heaviest(HTML)}
    with record("lighthouse", [0]) as metrics, served(HTML) as base:
        metrics["version"] = VERSION
        metrics["runs"] = args.times
        metrics["load"] = round(os.getloadavg()[0], 1)
        metrics["pages"] = {}
        speeds = []
        for kind, page in pages.items():
            address = f"{base}{page}.html"
            runs = [audit(tool, address) for _ in range(args.times)]
            speeds += [run["environment"]["benchmarkIndex"] for run in runs]
            sent = len(gzipped(HTML / f"{page}.html"))
            found = {"page": page, "bytes": sent} | summary(runs)
            metrics["pages"][kind] = found
            print(f"{page}: {found}", flush=True)
        metrics["benchmark index"] = spread(speeds)


if __name__ == "__main__":
    main()
