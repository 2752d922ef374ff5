"""The certificate by which a source knows its client, and its private key: two files, loaded before each connect.

Called by the sources' `connect`. Servers and libraries say little of a file that is missing, or of a key that belongs
to another certificate; here the file is named, in a pod the Secret. A rotated pair is taken at the next connect.
"""

import ssl

from tailrace.errors import AuthenticationFailed
from tailrace.storage.secret_files import file_place

_FIX = "Correct source.tls: a certificate and its private key, both as PEM, the key without a passphrase."
_ATTEMPTS = 2
"""A rotation may fall between the reading of the two files: kubelets change both at once."""


class _EncryptedKey(Exception):
    """OpenSSL asked for a passphrase; unanswered, it would ask at the terminal."""


def load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Into `context`. `AuthenticationFailed`: the two cannot be used."""
    names = file_place(certificate, "certificate file"), file_place(key, "key file")
    for path, name in zip((certificate, key), names, strict=True):
        _readable(path, name)
    for attempt in range(_ATTEMPTS):
        try:
            context.load_cert_chain(certificate, key, password=_unknown)
            return
        except _EncryptedKey:
            raise AuthenticationFailed(f"{names[1]} is encrypted", _FIX) from None
        except (ssl.SSLError, OSError) as error:
            said = error
            if getattr(error, "reason", None) != "KEY_VALUES_MISMATCH":
                break
            if attempt == _ATTEMPTS - 1:
                raise AuthenticationFailed(f"{names[1]} is not the key of {names[0]}", _FIX) from None
    raise AuthenticationFailed(f"{names[0]} and {names[1]} cannot be loaded: {said}", _FIX)


def _readable(path: str, name: str) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise AuthenticationFailed(f"{name} cannot be read: {error.strerror}", _FIX) from None


def _unknown() -> bytes:
    raise _EncryptedKey
