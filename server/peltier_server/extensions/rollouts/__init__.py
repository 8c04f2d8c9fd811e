"""Guarded changes of aliases: what is counted, shadows, feedback, and the decision."""
