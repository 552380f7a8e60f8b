"""What sites are asked about their rows whatever is learned from it: survey, treatment, Gram matrices, who is in view.

A question, the program that answers it and the one that asks it stand together, and beside them their plan.
May import: federation.protocol, privacy and below.
"""
