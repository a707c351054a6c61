"""A host that containers with GPUs can be deployed to: engine, log limits, data disk, users."""

from __future__ import annotations

import io

from pyinfra.api import deploy
from pyinfra.operations import files, server

from rollpin.errors import UsageError
from rollpin.gpu_host import from_data
from rollpin.operations import gpu_host as host_is


@deploy("GPU host")
def gpu_host(data: object) -> None:
    """The host is as `data`, the inventory's `gpu_host`, says. dockerd is never restarted."""
    try:
        wanted = from_data(data)
    except UsageError as error:
        host_is.refused(name="Read the inventory's gpu_host", reason=str(error))
        return
    host_is.engine_answers(name="Docker answers")
    host_is.logs_limited(
        name="Logs are limited", max_size=wanted.log_max_size, max_file=wanted.log_max_file
    )
    host_is.data_disk(name="Data disk", path=wanted.data_disk, own_disk=wanted.own_disk)
    for user in wanted.users:
        server.user(  # noqa: S604 - `shell` is the login shell
            name=f"User {user.name}",
            user=user.name,
            shell="/bin/bash",
            groups=["docker"] if user.docker else [],
            append=True,
            create_home=True,
            public_keys=list(user.public_keys) or None,
        )
        if user.sudo:
            files.put(
                name=f"User {user.name} may sudo",
                src=io.StringIO(f"{user.name} ALL=(ALL:ALL) NOPASSWD: ALL\n"),
                dest=f"/etc/sudoers.d/rollpin-{user.name}",
                mode="440",
            )
