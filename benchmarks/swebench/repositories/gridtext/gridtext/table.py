"""Write rows as columns of equal width."""

from collections.abc import Sequence


def render(rows: Sequence[Sequence[object]], header: Sequence[str] = (), align: str = "") -> str:
    """Return a table; align has a letter a column: l, r or c, and columns beyond it are left-aligned.

    Short rows are filled with empty cells. Lines have no blanks at their ends.
    """
    cells = [[str(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not cells:
        return ""
    width = max(len(row) for row in cells)
    cells = [row + [""] * (width - len(row)) for row in cells]
    widths = [max(len(row[column]) for row in cells) for column in range(width)]
    lines = [
        "  ".join(aligned(cell, widths[column], align[column : column + 1]) for column, cell in enumerate(row)).rstrip()
        for row in cells
    ]
    if header:
        lines.insert(1, "  ".join("-" * size for size in widths))
    return "\n".join(lines)


def aligned(cell: str, width: int, letter: str = "l") -> str:
    """Return a cell filled with blanks: at its right for l, at its left for r, at both sides for c."""
    if letter == "r":
        return cell.rjust(width)
    return cell.center(width) if letter == "c" else cell.ljust(width)
