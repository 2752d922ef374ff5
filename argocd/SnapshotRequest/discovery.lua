local suspended = obj.spec.suspend == true
local state = (obj.status or {}).state
local ended = state == "Completed" or state == "Failed" or state == "Cancelled"
return {
  suspend = { disabled = suspended or ended, iconClass = "fa fa-fw fa-pause" },
  resume = { disabled = not suspended or ended, iconClass = "fa fa-fw fa-play" },
}
