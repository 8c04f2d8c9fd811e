"""Named sets of parts: the methods of the papers."""
