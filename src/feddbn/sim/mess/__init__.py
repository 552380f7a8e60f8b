"""What real sites do to data, for simulations: a table of names and a function for each."""

from feddbn.sim.mess.table import MESSES, Mess, MessNames, resolve_mess

__all__ = ["MESSES", "Mess", "MessNames", "resolve_mess"]
