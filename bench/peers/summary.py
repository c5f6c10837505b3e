"""From single runs to figures: medians over rounds, ratios and differences taken within a round."""

from collections import defaultdict
from statistics import median

# Figures of which the median over rounds is taken as they are.
MIDDLES = ("cpu_us", "system_calls", "per_s", "per_core_s", "proxy_core", "load_core", "proxy_waited")
QUANTILES = ("p50_ms", "p99_ms", "p99_9_ms")


def middle(values):
    """The median of what is there, or None."""
    there = [value for value in values if value is not None]
    return median(there) if there else None


def summarise(runs, base="bare-ring"):
    """{load: {proxy: figures}} of all runs."""
    cells = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        cells[run["load"]][run["proxy"]][run["round"]] = run
    return {
        load: {proxy: cell(rounds, proxies, base) for proxy, rounds in proxies.items()}
        for load, proxies in cells.items()
    }


def cell(rounds, proxies, base):
    """The figures of one proxy under one load."""
    good = {number: run for number, run in rounds.items() if "failed" not in run}
    figures = {"rounds": len(good), "failed": [r["failed"] for r in rounds.values() if "failed" in r]}
    for name in MIDDLES:
        figures[name] = middle(run.get(name) for run in good.values())
    bases = proxies.get(base, {})
    figures["ratio"] = middle(ratio(run, bases.get(number)) for number, run in good.items())
    straight = proxies.get("direct", {})
    for what in ("ttft", "event"):
        figures[what] = {q: middle(run[what][q] for run in good.values()) for q in QUANTILES}
        figures[f"{what}_added_us"] = {
            q: middle(added(run, straight.get(number), what, q) for number, run in good.items())
            for q in QUANTILES
        }
    figures |= correctness(good, straight)
    figures |= memory(good)
    return figures


def ratio(run, base):
    """CPU against the bare ring's in the same round."""
    if not base or not base.get("cpu_us") or not run.get("cpu_us"):
        return None
    return run["cpu_us"] / base["cpu_us"]


def added(run, straight, what, quantile):
    """Microseconds more than without a proxy in the same round."""
    if not straight or "failed" in straight or not run[what]["count"]:
        return None
    return (run[what][quantile] - straight[what][quantile]) * 1e3


def correctness(good, straight):
    """What was sent and lost, and whether every byte of text agrees with the run without a proxy."""
    agree = [
        run["digest"] == straight[number]["digest"]
        for number, run in good.items()
        if run.get("repeatable") and number in straight and "failed" not in straight[number]
    ]
    return {
        "sent": sum(run["sent"] for run in good.values()),
        "lost": sum(run["lost"] for run in good.values()),
        "unfinished": sum(run["unfinished"] for run in good.values()),
        "same_bytes": all(agree) if agree else None,
        "left_running": sum(not run["nothing_left_running"] for run in good.values()),
        "errors": {kind: text for run in good.values() for kind, text in run["errors"].items()},
    }


def memory(good):
    idle = middle(run.get("idle_kb") for run in good.values())
    held = middle(run.get("window_kb") for run in good.values())
    count = next((run["held"] for run in good.values()), 0)
    each = (held - idle) / count if idle is not None and held is not None and count else None
    again = middle(run.get("again_kb") for run in good.values())
    answered = (again - idle) / count if again is not None and count else None
    after = middle(run.get("after_kb") for run in good.values())
    return {"idle_kb": idle, "each_kb": each, "answered_each_kb": answered, "after_kb": after}


def number(value, digits=1):
    """A figure for people: `-` where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


COLUMNS = (
    # heading, width, the figure
    ("cpu us", 9, lambda f: number(f["cpu_us"])),
    ("ratio", 7, lambda f: number(f["ratio"], 2)),
    ("calls", 7, lambda f: number(f["system_calls"], 2)),
    ("ttft+ p50", 12, lambda f: number(f["ttft_added_us"]["p50_ms"], 0)),
    ("p99", 11, lambda f: number(f["ttft_added_us"]["p99_ms"], 0)),
    ("event+ p50", 12, lambda f: number(f["event_added_us"]["p50_ms"], 0)),
    ("p99", 11, lambda f: number(f["event_added_us"]["p99_ms"], 0)),
    ("p99.9", 11, lambda f: number(f["event_added_us"]["p99_9_ms"], 0)),
    ("/core/s", 10, lambda f: number(f["per_core_s"], 0)),
    ("cores", 11, lambda f: f"{number(f['proxy_core'], 2)}/{number(f['load_core'], 2)}"),
    ("waited", 8, lambda f: number(f["proxy_waited"], 2)),
    ("idle MB", 8, lambda f: number(f["idle_kb"] and f["idle_kb"] / 1024)),
    ("each KB", 9, lambda f: number(f["each_kb"])),
    ("answered", 10, lambda f: number(f["answered_each_kb"])),
    ("lost", 6, lambda f: str(f["lost"])),
    ("bytes", 6, lambda f: {True: "same", False: "WRONG", None: "-"}[f["same_bytes"]]),
)


def table(summary, titles, order):
    """The figures as text: one block a load."""
    lines = []
    for load, proxies in summary.items():
        lines.append(f"\n{titles[load]}  [{load}]")
        lines.append(f"{'':15}" + "".join(f"{head:>{width}}" for head, width, _ in COLUMNS))
        for name in [one for one in order if one in proxies]:
            lines.append(row(name, proxies[name]))
    return "\n".join(lines)


BRIEF = (
    # heading, load, the figure
    ("event, spread", "streams-256-spread", lambda f: number(f["cpu_us"])),
    ("event, together", "streams-256-step", lambda f: number(f["cpu_us"])),
    ("request, 4 KB", "prompt-4k", lambda f: number(f["cpu_us"], 0)),
    ("request, 100 KB", "prompt-100k", lambda f: number(f["cpu_us"], 0)),
    ("first token, p50", "streams-256-spread", lambda f: number(f["ttft_added_us"]["p50_ms"], 0)),
    ("MB, idle", "streams-256-spread", lambda f: number(f["idle_kb"] and f["idle_kb"] / 1024)),
    ("KB a stream", "streams-4000-spread", lambda f: number(f["each_kb"])),
)


def brief(summary, order):
    """The figures most ask for, as Markdown; nothing for what there was no load for."""
    heads = [head for head, load, _ in BRIEF if load in summary]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in order:
        cells = [
            figure(summary[load][name]) if summary[load].get(name, {}).get("rounds") else "-"
            for _, load, figure in BRIEF
            if load in summary
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def row(name, figures):
    if not figures["rounds"]:
        return f"{name:15}  failed: {figures['failed'][0]}"
    cells = "".join(f"{figure(figures):>{width}}" for _, width, figure in COLUMNS)
    notes = [f"left running in {figures['left_running']} runs"] if figures["left_running"] else []
    notes += [f"{figures['unfinished']} without an end in 20 s"] if figures["unfinished"] else []
    notes += [f"{kind}: {text}" for kind, text in figures["errors"].items()]
    notes += [f"failed {len(figures['failed'])} times"] if figures["failed"] else []
    return f"{name:15}{cells}" + (f"   {'; '.join(notes)[:120]}" if notes else "")
