-- Reads all tables again while changes go on: a new SnapshotRequest, which goes with its Replicator.
local request = {
  apiVersion = obj.apiVersion,
  kind = "SnapshotRequest",
  metadata = {
    name = obj.metadata.name .. "-" .. os.date("!%Y%m%d%H%M%S"),
    namespace = obj.metadata.namespace,
    ownerReferences = {
      { apiVersion = obj.apiVersion, kind = obj.kind, name = obj.metadata.name, uid = obj.metadata.uid },
    },
  },
  spec = { replicator = obj.metadata.name, tables = obj.spec.tables.include },
}
return { { operation = "create", resource = request } }
