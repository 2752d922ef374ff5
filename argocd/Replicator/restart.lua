obj.spec.restartNonce = (obj.spec.restartNonce or 0) + 1
return obj
