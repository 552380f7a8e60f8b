"""What is done with several fits or without one: comparisons, confidence, checks of data, truths, studies.

Studies name methods by the method table; here their estimators are bound to it.
May import: methods and below.
"""
