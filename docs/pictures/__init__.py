"""Pictures of every page of the console, for the documents."""
