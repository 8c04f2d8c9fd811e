"""What a tenant may use: requests and tokens a second, requests at a time."""
