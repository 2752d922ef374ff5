-- Health of a Replicator or SnapshotRequest, by the conditions that kstatus reads, in the same order.
local function condition(kind)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == kind then
      return c
    end
  end
  return {}
end

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "is being deleted" }
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "the operator has not taken up the newest spec yet" }
end

local ready = condition("Ready")
if condition("Stalled").status == "True" then
  return { status = "Degraded", message = condition("Stalled").message }
end
if condition("Reconciling").status == "True" then
  return { status = "Progressing", message = condition("Reconciling").message }
end
if condition("Suspended").status == "True" then
  return { status = "Suspended", message = condition("Suspended").message }
end
if ready.status == "True" then
  return { status = "Healthy", message = ready.message }
end
return { status = "Progressing", message = ready.message or "waits for the operator" }
