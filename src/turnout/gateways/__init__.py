"""Other protocols in front of the service, for the clouds' own tools: GCS, S3 and gRPC."""
