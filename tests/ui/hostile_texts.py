"""What a model, a file or a user may write where a page shows it, and what a page must look like all the same.

`assert_harmless` compares a page that shows such a text with one that shows plain letters in its place: by a real HTML
parser the two have the same elements with the same attributes.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from lxml import html

from skillopt_airflow.core.values.text import is_hidden

LONG = 1_000_000
"""Characters of a line that no page can show whole."""
MAX_BYTES = 3_000_000
"""Of a page, however long the texts are that it shows."""
SCRIPT = "pages.js"

HOSTILE: Mapping[str, str] = {
    "script": "<script>document.title = 'owned'</script>",
    "script_src": '<script src="https://example.org/x.js"></script>',
    "closed_script": "</script><script>document.title = 'owned'</script>",
    "closed_style": "</style><script>document.title = 'owned'</script><style>*{display:none}",
    "closed_title": "</title><script>document.title = 'owned'</script>",
    "closed_textarea": "</textarea></select></option><img src=x onerror=\"document.title = 'owned'\">",
    "closed_table": "</td></tr></table></main></body><script>document.title = 'owned'</script>",
    "closed_pre": "</pre></span></code></details><b>bold",
    "image": "<img src=x onerror=\"document.title = 'owned'\">",
    "svg": "<svg onload=\"document.title = 'owned'\"><animate onbegin=alert(1) attributeName=x></svg>",
    "handler": "\" onmouseover=\"document.title = 'owned'\" autofocus onfocus=\"document.title = 'owned'",
    "handler_single": "' onclick='document.title = 1' x='",
    "frame": '<iframe srcdoc="<script>parent.document.title = 1</script>"></iframe>',
    "link": '<a href="javascript:document.title = 1" target=_top>click</a>',
    "address": "javascript:document.title='owned'",
    "data_address": "data:text/html,<script>alert(1)</script>",
    "form": '<form action="https://example.org"><button formaction="javascript:alert(1)">go</button></form>',
    "meta": '<meta http-equiv="refresh" content="0;url=https://example.org"><base href="https://example.org/">',
    "styled": '<p style="position:fixed;inset:0;background:url(https://example.org/x)">over everything</p>',
    "comment": "<!-- --!> <!--> <script>alert(1)</script> <![CDATA[ ]]> <?php ?>",
    "template": "{{ 7 * 7 }} {% for x in ().__class__.__bases__ %}{{ x }}{% endfor %} {# gone #} ${7*7} <%= 7*7 %>",
    "format": "{0} {title} %s %(name)s %n {up}",
    "markdown": '# heading\n\n[click](javascript:alert(1)) ![x](x"onerror=alert(1)) <b>bold</b>\n\n```\ncode\n```',
    "entities": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62; &amp;lt;b&amp;gt; &NewLine;",
    "controls": "a\x00b\x01\x08\x0b\x0c\x1b[31mred\x1b[0m\x7f\x80\x9bend",
    "right_to_left": "abc \u202etxt.exe\u202c \u2066\u2067inside\u2069 \u200f\u200e\u061c back",
    "right_to_left_script": "\u202eסוד שלום\u202c עברית (abc) < > \" '",
    "invisible": "a\u200bb\u200cc\ufeffd\u2028e\u2029f\u00ad\U000e0041",
    "quotes": "\"'`\\ \\\" \\' &quot; &#39; \\u003cscript\\u003e",
    "null": "null",
    "path": "../../../etc/passwd%00.png?x=1&y=2#fragment;/..\\..\\windows",
    "address_parts": "a/b?c=d&e=f#g%2F%00 +:@;,",
    "combining": "Z" + "\u0351\u036b\u0343" * 300,
    "long_line": "x" * LONG,
    "long_markup": "<b>" * (LONG // 3),
    "many_lines": "line\n" * 20_000,
}
"""By what each tries."""


class Element(NamedTuple):
    """An element of a page, without its values."""

    tag: str
    attributes: tuple[str, ...]


def plain(text: str) -> str:
    """Letters in as many lines of as many characters."""
    return re.sub(r"[^\n]", "x", text)


def assert_harmless(page: str, plain_page: str, most: int = MAX_BYTES) -> None:
    """Check a page that shows a hostile text against the one that shows `plain` of it.

    Args:
        page: as it is sent.
        plain_page: the same page with `plain(text)` wherever the text was.
        most: bytes that either may have.
    """
    assert len(page.encode()) <= most, f"{len(page.encode()):,} bytes"
    assert structure(page) == structure(plain_page)
    assert not any(map(is_hidden, page))
    tree = html.document_fromstring(page)
    scripts = tree.iter("script")
    assert all(one.get("src", "").partition("?")[0].endswith(SCRIPT) and not one.text for one in scripts)
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on"), (element.tag, name)
            if name in ("href", "src", "action", "formaction"):
                assert not re.match(r"\s*(javascript|vbscript|data:text)", value, re.IGNORECASE), (name, value)


def structure(page: str) -> list[Element]:
    """The elements of a page in their order."""
    tree = html.document_fromstring(page)
    return [Element(str(one.tag), tuple(sorted(one.attrib))) for one in tree.iter() if isinstance(one.tag, str)]
