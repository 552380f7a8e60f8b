"""The feddbn command: a file for each family of commands (`data`, `learn`, `use`, `federation`, `site`, `study`, ...).

It imports what a command needs when that runs; nothing imports it. `main` has the table of commands, `manual` the end
of their help, `options` what several take, `terminal` and `printed` what people see.
May import: console and below.
"""
