"""Presets: the methods of the papers as sets of parts."""
