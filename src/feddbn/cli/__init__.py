"""The feddbn command: a file for each family of commands (`data`, `learn`, `use`, `federation`, `site`, `study`, `research`).

May import everything, and does so when a command runs; nothing imports it. `main` has the table of commands, `manual` the end
of their help, `options` what several take, `terminal` and `printed` what people see.
"""
