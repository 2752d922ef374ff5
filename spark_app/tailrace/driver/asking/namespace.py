"""The one question that a driver has for Kubernetes itself: is its namespace being deleted?

Asked once, when a signal ends the driver. With the account of the pod, whose role lets it read its own namespace.
"""

import json
import logging
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "TAILRACE_ACCOUNT_FOLDER"
SECONDS = 5.0


def namespace_ends(environment: Mapping[str, str]) -> bool:
    """False outside a cluster, and when it is unknown: then nothing is dropped."""
    host, namespace = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("POD_NAMESPACE")
    if not host or not namespace:
        return False
    account = Path(environment.get(ACCOUNT_VARIABLE, ACCOUNT))
    place = f"[{host}]" if ":" in host else host
    url = f"https://{place}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}/api/v1/namespaces/{namespace}"
    try:
        token = (account / "token").read_text("utf-8").strip()
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with opener.open(request, timeout=SECONDS) as answer:
            document = json.loads(answer.read())
    except (OSError, ValueError) as error:
        log.warning("cannot tell whether namespace %s is being deleted: %s", namespace, error)
        return False
    return "deletionTimestamp" in document.get("metadata", {})
