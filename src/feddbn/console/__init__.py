"""A local web page for the owner of a site's data.

Bound to loopback, for one person on one machine. What a page shows is read by the functions that the commands use, and what a
button does is what a command does: there is no second way to approve a study. Needs the extra ``console``.

- `gate`: who may ask: one host name, a token that becomes a cookie, a token in every form, headers; and the socket.
- `web`: routes, templates, errors as sentences.
- `site_pages`: the pages; `site_facts`: what they show.

Commands of an owner read the same `site_facts`.
May import: report and below.
"""

from __future__ import annotations
