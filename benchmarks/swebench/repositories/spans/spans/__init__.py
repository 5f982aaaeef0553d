"""Durations as people write them."""

from spans.formatting import format_span
from spans.parsing import SpanError, parse_span

__all__ = ["SpanError", "format_span", "parse_span"]
