"""Staging: one host that resembles production, for trying a recipe. An example to copy.

See inventory/production.py for what each setting is for.
"""

staging = [
    (
        "gpu-staging",
        {
            "ssh_hostname": "192.0.2.21",
            "ssh_user": "root",
            "ssh_strict_host_key_checking": "yes",
            "ssh_known_hosts_file": "inventory/known_hosts",
            "ssh_paramiko_connect_kwargs": {
                "banner_timeout": 15,
                "auth_timeout": 15,
                "channel_timeout": 15,
            },
            # nobody's service is at stake here: do not watch 45 minutes for idleness
            "rollpin_idle": "5m",
            "rollpin_settle": "20s",
            "gpu_host": {"data_disk": "/data", "own_disk": False},
        },
    ),
]
