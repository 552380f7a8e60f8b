"""Studies on NVFlare: kits, jobs without code, the lead's session, the classes that server and sites run.

Nothing outside this folder imports nvflare.
May import: runtime.engines, runtime.server, runtime.settings, runtime.site, runtime.store, errors, federation, findings.
"""
