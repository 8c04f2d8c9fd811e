"""The console in browsers, and the comparison that its page shows. See `page.py` for the files of the page."""
