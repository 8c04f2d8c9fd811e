"""What `peltier top` shows: the metrics of a server read twice, and what happened between."""
