"""The documentation as a site: one folder for each version, without requests to other origins."""
