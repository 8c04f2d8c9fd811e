"""Tables, records and queries of what a server can leave out. No other module of the registry needs them."""
