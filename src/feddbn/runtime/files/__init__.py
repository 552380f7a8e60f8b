"""Studies by signed files: a shared folder, an airlock or e-mail instead of a network.

`signed` is a file and the folder it lies in, `kit` what both ends hold, `exchange` and `lead` are the lead's end, `site` is a
site's, `about` says what a file asks or holds.
May import: runtime.masked, runtime.server, runtime.settings, runtime.site, runtime.store, federation and below.
"""
