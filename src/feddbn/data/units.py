"""Units of measurement, by a short table: by what a number is multiplied, and what is added, when its unit changes.

A unit has one name here and perhaps others, among them its code in UCUM (the Unified Code for Units of Measure), which health
records use. The factors are definitions: a millimetre of mercury is 133.322387415 Pa, a pound 0.45359237 kg, an inch 2.54 cm.
"""

from __future__ import annotations

from difflib import get_close_matches
from fractions import Fraction

from feddbn.errors import ParameterError

__all__ = ["conversion"]

_UNITS = {
    "pressure": {
        "Pa": "1",
        "hPa mbar": "100",
        "kPa": "1000",
        "bar": "100000",
        "MPa": "1000000",
        "mmHg mm[Hg] torr": "133.322387415",
        "cmH2O cm[H2O]": "98.0665",
        "psi [psi]": "6894.757293168",
    },
    "temperature": {"K": "1", "C °C degC Cel": "1 273.15", "F °F degF [degF]": "5/9 459.67"},
    "rate": {"1/s Hz": "1", "1/min /min bpm rpm {beats}/min {breaths}/min": "1/60", "1/h /h": "1/3600"},
    "share": {"1 fraction": "1", "% percent": "1/100"},
    "mass": {"kg": "1", "g": "1/1000", "mg": "1/1000000", "lb [lb_av]": "0.45359237", "t": "1000"},
    "length": {"m": "1", "cm": "1/100", "mm": "1/1000", "in [in_i]": "0.0254", "ft [ft_i]": "0.3048"},
    "volume": {"L": "1", "dL": "1/10", "mL": "1/1000", "m3": "1000"},
    "flow": {
        "L/s": "1",
        "L/min": "1/60",
        "L/h": "1/3600",
        "mL/min": "1/60000",
        "mL/h": "1/3600000",
        "m3/h": "10/36",
        "m3/s": "1000",
    },
    "mass in a volume": {
        "g/L mg/mL": "1",
        "g/dL": "10",
        "mg/dL": "1/100",
        "mg/L ug/mL": "1/1000",
        "ug/L ng/mL": "1/1000000",
    },
    "amount in a volume": {"mol/L": "1", "mmol/L": "1/1000", "umol/L": "1/1000000", "nmol/L": "1/1000000000"},
    "time": {"s": "1", "ms": "1/1000", "min": "60", "h": "3600", "d": "86400"},
    "power": {"W": "1", "kW": "1000", "MW": "1000000"},
    "speed": {"m/s": "1", "km/h": "10/36"},
    "potential": {"V": "1", "mV": "1/1000", "kV": "1000"},
    "current": {"A": "1", "mA": "1/1000"},
}
"""Quantity -> names of a unit -> how many of the first unit it is, and, where its zero is elsewhere, how far from there."""


def _read() -> dict[str, tuple[str, Fraction, Fraction]]:
    found: dict[str, tuple[str, Fraction, Fraction]] = {}
    for quantity, units in _UNITS.items():
        for names, text in units.items():
            factor, _, zero = text.partition(" ")
            found |= {name: (quantity, Fraction(factor), Fraction(zero or 0)) for name in names.split()}
    return found


_TABLE = _read()


def _unit(name: str) -> tuple[str, Fraction, Fraction]:
    # There are two letters for micro, and both look like u with a tail.
    plain = name.strip().replace("\u00b5", "u").replace("\u03bc", "u")
    if plain in _TABLE:
        return _TABLE[plain]
    # Small and capital letters differ in size (mW, MW), so another spelling is only proposed.
    near = [one for one in _TABLE if one.lower() == plain.lower()] or get_close_matches(plain, _TABLE, n=1)
    hint = f"did you mean {near[0]!r}? Otherwise say" if near else "say"
    raise ParameterError(
        f"unit {name!r} is not known; {hint} how a number changes, with factor and offset.",
        code="unknown-unit",
        unit=name,
    )


def conversion(have: str, want: str) -> tuple[float, float]:
    """Return the factor and the offset by which a number in one unit becomes one in another: ``factor * x + offset``.

    Examples
    --------
    >>> from feddbn.data.units import conversion
    >>> conversion("F", "C")
    (0.5555555555555556, -17.77777777777778)
    """
    if have.strip() == want.strip():
        return 1.0, 0.0
    (measures, a, zero_a), (wanted, b, zero_b) = _unit(have), _unit(want)
    if measures != wanted:
        substance = {measures, wanted} == {"mass in a volume", "amount in a volume"}
        why = ", which depends on the substance" if substance else ""
        raise ParameterError(
            f"unit {have!r} is a {measures} and {want!r} a {wanted}{why}; "
            + ("say how a number changes, with factor and offset." if substance else "name two of one kind."),
            code="other-quantity",
            units=(have, want),
        )
    return float(a / b), float(zero_a * a / b - zero_b)
