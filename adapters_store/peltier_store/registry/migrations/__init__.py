"""The history of the registry's schema, which `Registry.open` applies."""
