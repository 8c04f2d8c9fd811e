"""What the server can leave out. Only `app.py` and `cli.py` import extensions, and none imports another."""
