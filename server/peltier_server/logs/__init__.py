"""Log records, and the fields that a request adds to them."""
