"""What is done with several fits or without one: comparisons, confidence, checks of data, truths, studies."""
