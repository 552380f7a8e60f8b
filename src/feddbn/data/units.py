"""Units of measurement, by a short table: by what a number is multiplied, and what is added, when its unit changes.

A unit has one name here and perhaps others, among them its code in UCUM (the Unified Code for Units of Measure), which health
records use. The factors are definitions: a millimetre of mercury is 133.322387415 Pa, a pound 0.45359237 kg, an inch 2.54 cm.
"""

from __future__ import annotations

from difflib import get_close_matches

from feddbn.errors import ParameterError

__all__ = ["conversion"]

_UNITS: dict[str, dict[str, float]] = {
    "pressure": {
        "Pa": 1,
        "hPa mbar": 100,
        "kPa": 1000,
        "bar": 100_000,
        "MPa": 1_000_000,
        "mmHg mm[Hg] torr": 133.322387415,
        "cmH2O cm[H2O]": 98.0665,
        "psi [psi]": 6894.757293168,
    },
    "temperature": {"K": 1, "C °C degC Cel": 1, "F °F degF [degF]": 5 / 9},
    "rate": {"1/s Hz": 1, "1/min /min bpm rpm {beats}/min {breaths}/min": 1 / 60, "1/h /h": 1 / 3600},
    "share": {"1 fraction": 1, "% percent": 0.01},
    "mass": {"kg": 1, "g": 1e-3, "mg": 1e-6, "lb [lb_av]": 0.45359237, "t": 1000},
    "length": {"m": 1, "cm": 0.01, "mm": 1e-3, "in [in_i]": 0.0254, "ft [ft_i]": 0.3048},
    "volume": {"L": 1, "dL": 0.1, "mL": 1e-3, "m3": 1000},
    "flow": {
        "L/s": 1,
        "L/min": 1 / 60,
        "L/h": 1 / 3600,
        "mL/min": 1 / 60e3,
        "mL/h": 1 / 36e5,
        "m3/h": 1 / 3.6,
        "m3/s": 1000,
    },
    "mass in a volume": {"g/L mg/mL": 1, "g/dL": 10, "mg/dL": 0.01, "mg/L ug/mL": 1e-3, "ug/L ng/mL": 1e-6},
    "amount in a volume": {"mol/L": 1, "mmol/L": 1e-3, "umol/L": 1e-6, "nmol/L": 1e-9},
    "time": {"s": 1, "ms": 1e-3, "min": 60, "h": 3600, "d": 86400},
    "power": {"W": 1, "kW": 1000, "MW": 1_000_000},
    "speed": {"m/s": 1, "km/h": 1 / 3.6},
    "potential": {"V": 1, "mV": 1e-3, "kV": 1000},
    "current": {"A": 1, "mA": 1e-3},
}
"""Quantity -> names of a unit -> how many of the first unit it is."""
_ZEROS = {"C": 273.15, "F": 459.67}
"""How many of a unit lie between zero kelvin and its own zero."""
_TABLE = {
    name: (quantity, size, _ZEROS.get(names.split()[0], 0.0))
    for quantity, units in _UNITS.items()
    for names, size in units.items()
    for name in names.split()
}


def _unit(name: str) -> tuple[str, float, float]:
    # There are two letters for micro, and both look like u with a tail.
    plain = name.strip().replace("\u00b5", "u").replace("\u03bc", "u")
    if plain not in _TABLE:
        # Small and capital letters differ in size (mW, MW), so another spelling is only proposed.
        near = [one for one in _TABLE if one.lower() == plain.lower()] or get_close_matches(
            plain, _TABLE, n=1
        )
        hint = f"did you mean {near[0]!r}? Otherwise say" if near else "say"
        said = f"unit {name!r} is not known; {hint} how a number changes, with factor and offset."
        raise ParameterError(said, code="unknown-unit", unit=name)
    return _TABLE[plain]


def conversion(have: str, want: str) -> tuple[float, float]:
    """Return the factor and the offset by which a number in one unit becomes one in another: ``factor * x + offset``.

    Examples
    --------
    >>> from feddbn.data.units import conversion
    >>> conversion("kg", "g")
    (1000.0, 0.0)
    """
    if have.strip() == want.strip():
        return 1.0, 0.0
    (measures, a, zero_a), (wanted, b, zero_b) = _unit(have), _unit(want)
    if measures != wanted:
        raise ParameterError(
            f"unit {have!r} is a {measures} and {want!r} a {wanted}; name two of one kind, or say how a number changes, with "
            "factor and offset.",
            code="other-quantity",
            units=(have, want),
        )
    return a / b, zero_a * a / b - zero_b
