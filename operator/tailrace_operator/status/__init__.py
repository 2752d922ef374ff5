"""What the operator says of a resource: models of the status subresources, conditions, texts. Pure."""
