"""What the server can leave out, and Ray, which starts whole servers.

Beside `app.py`, only `cli.py` and `doctor/` import extensions. None imports another, except that trainings and batches
keep files.
"""
