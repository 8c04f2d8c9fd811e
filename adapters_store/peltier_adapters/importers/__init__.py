"""From adapters of other libraries to Peltier's own artifacts; what cannot be served exactly is refused."""
