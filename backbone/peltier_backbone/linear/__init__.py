"""Frozen linear maps, tables and norms, in float32, bfloat16 and 8 bits."""
