"""Kits for a platform that carries messages itself (`feddbn.engine`): each is a site's folder; the platform does the rest.

Owners check their data, approve studies and read their logs as with any other kit.
May import: runtime.engines, runtime.site, federation, findings.
"""
