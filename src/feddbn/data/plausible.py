"""Plausible values: tables of limits that are ready for use, by a word.

``adult-icu``: vital signs and common laboratory values of adults in intensive care, under the names and in the units of the
Common Longitudinal ICU data Format (CLIF). These are the limits beyond which the consortium takes a value for an error
(``clifpy``, ``schemas/outlier_config.yaml``; Rojas et al., Intensive Care Medicine 51, 2025). They are wide: a value within
them may still be wrong, and a heart rate or a pressure of 0 is within them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PLAUSIBLE"]

PLAUSIBLE: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "adult-icu": {
        "temp_c": (32, 44),
        "heart_rate": (0, 300),
        "sbp": (0, 300),
        "dbp": (0, 200),
        "map": (0, 250),
        "spo2": (50, 100),
        "respiratory_rate": (0, 60),
        "height_cm": (76, 255),
        "weight_kg": (30, 1100),
        "fio2_set": (0.21, 1),
        "peep_set": (0, 30),
        "albumin": (0, 15),
        "alkaline_phosphatase": (0, 5000),
        "alt": (0, 20000),
        "ast": (0, 20000),
        "bicarbonate": (0, 50),
        "bilirubin_total": (0, 80),
        "bun": (0, 250),
        "calcium_ionized": (0, 20),
        "calcium_total": (0, 20),
        "chloride": (50, 140),
        "creatinine": (0, 20),
        "crp": (0, 1000),
        "glucose_fingerstick": (0, 2000),
        "glucose_serum": (0, 2000),
        "hemoglobin": (2, 25),
        "inr": (0, 15),
        "lactate": (0, 30),
        "ldh": (0, 10000),
        "magnesium": (0, 10),
        "pco2_arterial": (0, 250),
        "pco2_venous": (0, 250),
        "ph_arterial": (6, 10),
        "ph_venous": (5, 10),
        "phosphate": (0, 15),
        "platelet_count": (0, 2000),
        "po2_arterial": (0, 700),
        "potassium": (0, 15),
        "procalcitonin": (0, 1000),
        "pt": (1, 200),
        "ptt": (1, 200),
        "so2_arterial": (0, 100),
        "sodium": (90, 210),
        "total_protein": (0, 20),
        "troponin_i": (0, 10000),
        "troponin_t": (0, 10000),
        "wbc": (0, 500),
    }
}
"""Word -> variable -> lowest and highest plausible value.

Examples
--------
>>> from feddbn.data import PLAUSIBLE
>>> PLAUSIBLE["adult-icu"]["heart_rate"]
(0, 300)
"""
