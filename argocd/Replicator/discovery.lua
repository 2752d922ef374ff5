local suspended = obj.spec.suspend == true
return {
  suspend = { disabled = suspended, iconClass = "fa fa-fw fa-pause" },
  resume = { disabled = not suspended, iconClass = "fa fa-fw fa-play" },
  restart = { disabled = suspended, iconClass = "fa fa-fw fa-redo" },
  snapshot = { disabled = suspended, iconClass = "fa fa-fw fa-camera" },
}
