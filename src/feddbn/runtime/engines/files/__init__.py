"""Studies by signed files: a shared folder, an airlock or e-mail instead of a network.

`signed` is a file and the folder it lies in, `exchange` the lead's end of a run, `site` a site's, `kit` what both hold,
`about` what a file says; `engine` puts them together.
May import: runtime.engines, runtime.keeper, runtime.masked, runtime.server, runtime.settings, runtime.site, runtime.store, federation and below.
"""  # noqa: E501
