"""What sites are asked about their rows whatever is learned from it: survey, treatment, Gram matrices, who is in view."""
