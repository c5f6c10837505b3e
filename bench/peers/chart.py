"""The picture: a few figures of a run as bars, in one SVG that reads in light and in dark.

It draws what the summary holds and computes nothing. No script, no fonts of its own.
"""

from html import escape

# (load, figure, heading); a figure is a path into the summary's cell.
PANELS = (
    ("streams-256-spread", ("cpu_us",), "CPU per event, 256 streams, spread (µs)"),
    ("streams-256-step", ("cpu_us",), "CPU per event, 256 streams, all together (µs)"),
    ("prompt-4k", ("cpu_us",), "CPU per request, 4 KB prompt (µs)"),
    ("prompt-100k", ("cpu_us",), "CPU per request, 100 KB prompt (µs)"),
    ("streams-256-spread", ("event_added_us", "p99_ms"), "Added to an event, p99 (µs)"),
    ("prompt-100k", ("ttft_added_us", "p50_ms"), "Added to the first token, 100 KB, p50 (µs)"),
)

WIDTH = 920
PANEL_WIDTH = 440
LABELS = 98
VALUES = 64
BAR = 14
STEP = 21
HEAD = 34
TOP = 62

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .head { font-weight: 600; }
  .quiet { fill: #59636e; }
  .peer { fill: #8c959f; }
  .bound { fill: #d1d9e0; }
  .ours { fill: #0969da; }
  .back { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .peer { fill: #6e7681; }
    .bound { fill: #3d444d; }
    .ours { fill: #4493f8; }
    .back { fill: #0d1117; }
  }
"""


def figure(cell, path):
    for name in path:
        cell = cell.get(name) if cell else None
    return cell


def panel(x, y, heading, values, bounds):
    """One heading with a bar for each proxy, the longest filling the room."""
    room = PANEL_WIDTH - LABELS - VALUES
    longest = max([value for _, value in values if value is not None] or [1]) or 1
    parts = [f'<text class="head" x="{x}" y="{y + 14}">{escape(heading)}</text>']
    for place, (name, value) in enumerate(values):
        top = y + HEAD + place * STEP - 8
        parts.append(f'<text x="{x + LABELS - 8}" y="{top + 11}" text-anchor="end">{escape(name)}</text>')
        kind = "bound" if name in bounds else "ours" if name.startswith("shearwater") else "peer"
        length = max(value or 0, 0) / longest * room
        parts.append(
            f'<rect class="{kind}" x="{x + LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        )
        text = "no figure" if value is None else f"{value:,.{1 if abs(value) < 100 else 0}f}"
        parts.append(
            f'<text class="quiet" x="{x + LABELS + length + 6:.1f}" y="{top + 11}">{text}</text>'
        )
    return "\n".join(parts)


def draw(summary, order, machine, note):
    """The SVG's text."""
    panels = [one for one in PANELS if one[0] in summary]
    names = [name for name in order if name != "direct"]
    height = HEAD + len(names) * STEP + 18
    parts = []
    for place, (load, path, heading) in enumerate(panels):
        x = 12 + place % 2 * (WIDTH - PANEL_WIDTH - 16)
        y = TOP + place // 2 * height
        cells = summary[load]
        values = [(name, figure(cells[name], path)) for name in names if name in cells]
        parts.append(panel(x, y, heading, values, {"bare-ring"}))
    total = TOP + (len(panels) + 1) // 2 * height + 6
    subtitle = f"{machine['cpu']}, kernel {machine['kernel']}; {note}. Shorter is better."
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img"
  aria-label="What each proxy costs, per event and per request">
<style>{STYLE}</style>
<rect class="back" width="{WIDTH}" height="{total}" rx="6"/>
<text class="title" x="12" y="26">What a proxy costs, on one core before the same fleet</text>
<text class="quiet" x="12" y="45">{escape(subtitle)}</text>
{chr(10).join(parts)}
</svg>
"""
