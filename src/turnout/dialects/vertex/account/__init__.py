"""Authentication: bearer tokens, and the token endpoint of service accounts."""
