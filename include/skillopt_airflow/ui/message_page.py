"""Small pages that say why there is no report to show."""

from html import escape

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d232b; --muted: #566270; --card: #fff; --rule: #dde2e8; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e9ef; --muted: #9eabb8; --card: #1b2128; --rule: #303944; }}
}}
body {{ margin: 0; color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 38rem; margin: 12vh auto 0; padding: 1.5rem 1.75rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: 8px; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.2rem; margin: 0 0 .5rem; }} p {{ margin: 0; color: var(--muted); }}
</style>
</head>
<body><main><h1>{title}</h1><p>{text}</p></main></body>
</html>
"""


def message(title: str, text: str) -> str:
    """Return the page; both texts are escaped."""
    return PAGE.format(title=escape(title), text=escape(text))
