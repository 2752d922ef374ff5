"""The observed state: the index of watched objects and the drivers' reports. Never acts."""
