"""Where sums are carried out: in this process (`simulated`), or by a server and its sites; `files` carries their messages.

`masked` and `noisy` wrap the sum of any federation, `store` is what server and sites keep on disk, `settings` what their
administrators write.
May import: federation and below.
"""
