"""Connections, middleware and the route class: everything between the socket and a route."""
