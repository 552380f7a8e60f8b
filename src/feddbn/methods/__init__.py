"""Estimators with scikit-learn conventions."""
