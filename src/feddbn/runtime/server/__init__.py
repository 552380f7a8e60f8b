"""The server of a study: it asks, adds up and writes down.

`conduct` runs one study, `coordinator` is its federation, `masked_sums` and `collecting` are how a sum is made under masks
and over days. It sees sums and what sites say of themselves, never a row.
May import: runtime.masked, runtime.noisy, runtime.settings, runtime.store, federation and below.
"""
