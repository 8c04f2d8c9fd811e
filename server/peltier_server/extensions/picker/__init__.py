"""The gauges by which endpoint pickers choose a replica, on an address of their own."""
