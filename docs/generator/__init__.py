"""Builds the pages that are made from the code: `make reference`, and in the site `make docs`."""
