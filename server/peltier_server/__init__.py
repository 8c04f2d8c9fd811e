"""The server: HTTP, queue, batches, slots, metrics. Imports nothing heavy; `app.create_app` is where it begins."""
