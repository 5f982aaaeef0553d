"""A line of evidence in the height of a text, as SVG whose colours the stylesheet gives."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 132, 30, 3
"""In units of the drawing, which a page shows as pixels."""
ROOM = 1.1
"""How far above the limit the drawing reaches, as a factor."""


def sparkline(values: Sequence[float], limit: float, described: str) -> str:
    """Return the values as a line from 0 to above a dashed limit; what is below 0 lies on 0.

    Args:
        values: at least one, in their order.
        limit: above 0.
        described: says the same in words.
    """
    top = max(limit * ROOM, *values)
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = [(MARGIN + step * place, _height(value, top)) for place, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    reached = " reached" if values[-1] >= limit else ""
    return (
        f'<svg class="spark{reached}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(described)}"><line class="limit" x1="0" x2="{WIDTH}" y1="{_height(limit, top):.1f}" '
        f'y2="{_height(limit, top):.1f}" /><polyline points="{line}" />'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" /></svg>'
    )


def _height(value: float, top: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * max(0.0, value) / top
