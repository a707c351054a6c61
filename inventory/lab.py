"""The hosts of the lab that ROLLPIN_LAB names: `rollpin lab up` first.

ROLLPIN_LAB_USER=deploy reaches them as the user that needs sudo; the default is root.
"""

import os
import sys

from rollpin.errors import RollpinError
from rollpin.lab import network, registry, state

try:
    _lab = state.load()
    network.require(_lab)
except RollpinError as error:
    # loads only while the lab is up: its subnet means nothing to this machine otherwise
    # (pyinfra would show a traceback for any exception but this one)
    sys.exit(f"inventory/lab.py: {error}")

_user = os.environ.get("ROLLPIN_LAB_USER") or "root"
_data = {
    "ssh_user": _user,
    "ssh_key": str(_lab.key),
    "ssh_known_hosts_file": str(_lab.known_hosts),
    "ssh_strict_host_key_checking": "yes",
    "ssh_paramiko_connect_kwargs": {
        "banner_timeout": 15,
        "auth_timeout": 15,
        "channel_timeout": 15,
    },
    # the lab's images have digests of their own: where to pull from, and what is pinned there
    "rollpin_mirrors": {
        registry.REPOSITORY: {
            "repository": f"{_lab.registry}/{registry.REPOSITORY}",
            "pins": dict(_lab.images),
        }
    },
    **({} if _user == "root" else {"_sudo": True}),
}

lab = [(_seat.name, {"ssh_hostname": _seat.address, **_data}) for _seat in _lab.seats]
