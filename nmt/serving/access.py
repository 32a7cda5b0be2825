"""Who may send requests: checks of Host, Origin and token."""

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.serving.limits import Refused

# What a page needs before its user can enter a token.
OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health"}


@dataclass(frozen=True)
class Access:
    """The rules of a server.

    Attributes:
        hosts: names of this server that clients may use, besides its addresses. A foreign page whose own name resolves
            to this machine (DNS rebinding) uses another one.
        origins: foreign origins whose pages may send requests.
        token: the secret that requests need; None if they need none.
    """

    hosts: Collection[str]
    origins: Collection[str]
    token: str | None

    @classmethod
    def of(cls, config: ServeConfig) -> "Access":
        """Returns the rules that the options set.

        Raises:
            NmtError: the file of the token cannot be read or has no token.
        """
        hosts = {"localhost", config.host.lower(), *(host.lower() for host in config.allow_host)}
        return cls(hosts, set(config.allow_origin), _token(config.token_file))

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises Refused if a request may not be answered."""
        host = headers.get("host", "")
        if not self._is_own(host):
            raise Refused(421, f"this server is not {host!r:.80}; use its address, or start it with --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and origin.partition("://")[2] != host:
            raise Refused(403, f"pages of {origin!r:.80} may not send requests; start the server with --allow-origin")
        if self.token is not None and not is_open(path) and not self._has_token(headers):
            raise Refused(401, "the request needs the header Authorization: Bearer with the token of this server")

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.hosts or _is_address(name)

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        assert self.token is not None
        return hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self.token}".encode())


def is_open(path: str) -> bool:
    """Returns whether a path needs no token: pages without content of users, and health."""
    return path in OPEN_PATHS or path.startswith(("/static/", "/attention/"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise NmtError(f"--token-file {path} cannot be read ({error}); check the path") from error
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise NmtError(f"--token-file {path} must have a secret of printable ASCII characters without spaces")
    return token
