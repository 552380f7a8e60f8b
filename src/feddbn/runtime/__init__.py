"""Where sums are carried out: in this process (`simulated`), or by a server and its sites on an engine.

`masked` and `noisy` wrap the sum of any federation, `store` is what server and sites keep on disk, `settings` what their
administrators write, `keeper` one of the two parties that open the sums of some studies. The modules `nvflare_*` only keep
names that kits in the field refer to.
May import: federation and below.
"""
