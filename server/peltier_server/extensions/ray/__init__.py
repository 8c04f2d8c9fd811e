"""Replicas on Ray Serve, and training workers as tasks of Ray.

Needs the extra `ray`; only `peltier serve --ray` and `serve run` import it.
"""
