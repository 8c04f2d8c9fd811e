"""Replicas on Ray Serve. Needs the extra `ray`; only `peltier serve --ray` and `serve run` import it."""
