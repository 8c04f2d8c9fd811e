"""Files of callers, of examples for trainings and of requests for batches: their routes, and how they are kept."""
