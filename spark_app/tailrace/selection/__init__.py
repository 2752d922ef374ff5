"""The options of a table (`options[]` of the manifest): which rows are copied, as which types, under which masks."""
