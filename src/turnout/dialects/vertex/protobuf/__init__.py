"""The JSON mapping of protobuf: fields, enums, times, field masks, and where in a request a field is."""
