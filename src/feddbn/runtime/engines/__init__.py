"""What carries messages and starts processes: one folder for each engine, and `interface` for all of them.

`local` runs a whole federation of any engine on one machine.
May import: runtime.keeper, runtime.masked, runtime.server, runtime.settings, runtime.site, runtime.store, federation and below.
"""  # noqa: E501
