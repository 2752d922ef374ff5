"""The operator's report on a resource: models of the status subresources, conditions, texts. Pure."""
