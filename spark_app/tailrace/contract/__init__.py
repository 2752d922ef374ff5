"""The contract between operator, data plane and users: resources, status document, driver interface."""
