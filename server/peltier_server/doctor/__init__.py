"""The checks of `peltier doctor` that need the server's packages: this machine, and a server's settings on it."""
