"""Computes the answer for a resolved task: tokenises, queues, computes or generates, and serialises."""
