"""The queue of rows: admission, order and batches."""
