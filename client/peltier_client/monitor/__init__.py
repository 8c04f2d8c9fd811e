"""What `peltier top` shows: the state of a replica read twice, and what happened between."""
