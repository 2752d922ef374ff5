"""Secrets and ConfigMaps that a spec names. Pure."""

from tailrace.contract.resources import Credentials, ReplicatorSpec


def mounted_secrets(spec: ReplicatorSpec) -> tuple[str, ...]:
    """Secrets that driver and executors find at `/etc/tailrace/secrets/<name>`."""
    catalog = spec.target.catalog
    named = [
        _secret(spec.source.credentials),
        spec.source.tls.ca_secret_name,
        spec.source.tls.client_secret_name,
        _secret(spec.target.credentials),
        _secret(spec.storage.credentials),
        _secret(spec.mask_key),
        _secret(catalog.credentials) if catalog is not None else None,
    ]
    return tuple(sorted({name for name in named if name is not None}))


def _secret(credentials: Credentials | None) -> str | None:
    return credentials.secret_name if credentials is not None else None


def data(spec: ReplicatorSpec) -> tuple[str, ...]:
    """`Secret/name` and `ConfigMap/name` of all whose content the pods use: a change restarts the driver."""
    found = {f"Secret/{name}" for name in mounted_secrets(spec)}
    for pod in (spec.driver, spec.executors):
        found |= {f"Secret/{v.secret.secret_name}" for v in pod.volumes if v.secret is not None}
        found |= {f"ConfigMap/{v.config_map.name}" for v in pod.volumes if v.config_map is not None}
        found |= {f"Secret/{e.value_from.secret_key_ref.name}" for e in pod.env if e.value_from is not None}
    return tuple(sorted(found))
