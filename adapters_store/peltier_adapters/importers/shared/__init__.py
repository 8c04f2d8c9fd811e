"""What several importers read alike."""
