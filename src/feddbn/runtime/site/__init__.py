"""A site of a study: it answers, and decides what it answers.

`open_site` puts an endpoint together from settings, `protection` its guards; owner, audit log, registers and masks are here.
May import: runtime.masked, runtime.settings, runtime.store, federation and below.
"""
