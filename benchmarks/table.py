"""One Markdown table of a run."""

from collections.abc import Iterator
from typing import Any

from benchmarks.contest import OURS, rivals

HEAD = (
    "| work | ratio (quartiles) | coursekit | peer | wanted | found |\n"
    "|---|--:|--:|--:|--:|---|"
)

CURVES = "step over context", "step over width"
"""Workloads with a table of their own."""


def markdown(metrics: dict[str, Any]) -> str:
    """The table, what was skipped, and what everything was held against."""
    works = metrics["workloads"]
    rows = [
        line(name, work)
        for name, work in works.items()
        if "failed" not in work and name not in CURVES
    ]
    lines = [HEAD, *rows, "", limits(metrics), ""]
    for name in CURVES:
        if "points" in (work := works.get(name, {})):
            peaks = work.get("peaks", metrics["peaks"])
            lines += [*curve(name, work["points"], peaks), ""]
    lines += [f"- {why}" for why in reasons(works, metrics["peaks"])]
    lines += [f"- {sentence}" for sentence in remarks(works)]
    return "\n".join(lines).strip() + "\n"


def line(name: str, work: dict[str, Any]) -> str:
    """A workload's row of the table."""
    if "failed" in work:
        return f"| {name} | | | | | {work['failed']} |"
    wanted = ", ".join(want(v["target"]) for v in work["verdicts"])
    verdict = "; ".join(v["verdict"] for v in work["verdicts"])
    if "rows" not in work:
        values = [f"{v['value']:.2f}" for v in work["verdicts"]]
        ours = ", ".join(f"{value} {work['unit']}" for value in values)
        return f"| {name} | | {ours} | | {wanted} | {verdict} |"
    ours = f"{number(work['rows'][OURS]['speed'])} {work['unit']}"
    rows = rivals(work)
    if not rows:
        return f"| {name} | | {ours} | none | {wanted} | {verdict} |"
    best = min(rows, key=lambda who: rows[who]["ratio"])
    named = [v["target"]["against"] for v in work["verdicts"]]
    who = next((peer for peer in named if peer in rows), best)
    low, high = map(times, rows[who]["spread"])
    ratio = f"{times(rows[who]['ratio'])} ({low}–{high})"
    theirs = f"{number(rows[who]['speed'])} {who}"
    if who != best:
        theirs += f"; best {number(rows[best]['speed'])} {best}"
    return f"| {name} | {ratio} | {ours} | {theirs} | {wanted} | {verdict} |"


def want(target: dict[str, Any]) -> str:
    """A target in a few signs."""
    if target["number"]:
        return f"≤ {target['at_most']:g}"
    return f"≥ {target['at_least']:g}×"


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    """A ratio, to the hundredth where that counts."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}"


def limits(metrics: dict[str, Any]) -> str:
    """The matrix products that nobody can beat, and the machine's state."""
    peaks = ", ".join(
        f"{name} {peak['gflops']:,.0f} (error {peak['error']:.0e})"
        for name, peak in metrics["peaks"].items()
    )
    how = "quick" if metrics["quick"] else "full"
    return (
        f"A {how} run on {metrics['threads']} threads. Matrix products, "
        f"GFLOP/s: {peaks}. Other work on the machine when it began: "
        f"{metrics['load']:.1f} processes."
    )


def curve(
    name: str, points: list[dict[str, Any]], peaks: dict[str, Any]
) -> Iterator[str]:
    """A table of the points over which a cost grows."""
    peak = peaks["fp32"]["gflops"]
    yield f"{name[0].upper()}{name[1:]}:\n"
    yield (
        "| context | width | tokens/s | GFLOP a token, counted | GFLOP/s, "
        "share of the peak | memory, MB |"
    )
    yield "|--:|--:|--:|--:|--:|--:|"
    for point in points:
        yield (
            f"| {point['context']:,} | {point['d_model']:,} "
            f"| {number(point['speed'])} "
            f"| {number(point['gflops'] / point['speed'])} "
            f"| {number(point['gflops'])}, {point['gflops'] / peak:.0%} "
            f"| {point['peak_bytes'] / 1e6:,.0f} |"
        )


def reasons(
    works: dict[str, Any], peaks: dict[str, dict[str, float]]
) -> Iterator[str]:
    """Reasons why rows miss their targets, as far as this run shows them."""
    shares, reading = [], []
    rounds = peaks["fp32 oneDNN"]["error"] > 4 * peaks["fp32"]["error"]
    for name, work in works.items():
        verdicts = [verdict["verdict"] for verdict in work.get("verdicts", [])]
        if not any(verdict.startswith("short") for verdict in verdicts):
            continue
        row = work["rows"][OURS]
        if "peak" in work:  # a GPU's own: remarks() has everybody's share
            continue
        if "flops_per_token" in row:
            gflops = row["flops_per_token"] * row["speed"] / 1e9
            own = work.get("peaks", peaks)
            peak = own["bf16" if "bf16" in name else "fp32"]["gflops"]
            shares.append(f"{name} {gflops / peak:.0%}")
        elif "by default" in name and rounds:
            yield f"short: oneDNN rounds here, so MKL multiplies ({name})"
        elif "products_seconds" in row:
            share = row["products_seconds"] / row["wall_seconds"]
            reading.append(f"{name} {share:.0%}")
    if shares:
        yield (
            "short, and their share of the fastest product: "
            f"{', '.join(shares)}"
        )
    if reading:
        yield (
            "short, and what the products with weights, alone, take of our "
            f"time: {'; '.join(reading)}"
        )


def remarks(works: dict[str, Any]) -> Iterator[str]:
    """Notes on peers that were left out or differ by design."""
    found: dict[str, list[str]] = {}
    for name, work in works.items():
        if "failed" in work:
            found.setdefault(work["failed"], []).append(name)
        if "peak" in work:
            shares = ", ".join(
                f"{who} {row['mfu']:.0%}" for who, row in work["rows"].items()
            )
            yield (
                f"{name}: share of the fastest bf16 product, "
                f"{work['peak']:,.0f} GFLOP/s: {shares}"
            )
        for who, why in work.get("skipped", {}).items():
            found.setdefault(f"{who} skipped: {why}", []).append(name)
        for who, row in work.get("rows", {}).items():
            for key in ("disqualified", "note"):
                if key in row:
                    text = f"{who}, {key}: {row[key]}"
                    found.setdefault(text, []).append(name)
    for text, names in found.items():
        few = names if len(names) < 3 else [f"{len(names)} rows"]
        yield f"{text} ({', '.join(few)})"
