"""Production: an example to copy. Replace the hosts by your own; it names none that exist.

Every pyinfra setting can stand here; those below are what rollpin needs or advises.
"""

_ssh = {
    "ssh_user": "deploy",
    # docker and the state directory need root: as root, or by sudo without a password
    "_sudo": True,
    # A deploy must not trust a stranger: an unknown or changed key ends it. Fill the file once,
    # over a way that you trust, with: ssh-keyscan -t ed25519 HOST
    "ssh_strict_host_key_checking": "yes",
    "ssh_known_hosts_file": "inventory/known_hosts",
    "ssh_paramiko_connect_kwargs": {
        "banner_timeout": 15,
        "auth_timeout": 15,
        "channel_timeout": 15,
    },
}

_rollpin = {
    # A registry of one's own in front of the public one. `pins` is needed only where the mirror's
    # digests differ; without an entry the profile's pin counts.
    # "rollpin_mirrors": {
    #     "lmsysorg/sglang": {"repository": "registry.example:5000/lmsysorg/sglang", "pins": {}}
    # },
    # What differs from the profile on these hosts; the plan says each change aloud.
    # "rollpin_start_deadline": "30m",
    # "rollpin_lease": "5m",
    # "rollpin_env": {"NCCL_P2P_DISABLE": "1"},
}

# What a host must be, for deploys/gpu_host.py.
_host = {
    "gpu_host": {
        "data_disk": "/data",
        "log_max_size": "100m",
        "log_max_file": 5,
        "users": {"oncall": {"docker": True, "sudo": True}},
    }
}

production = [
    ("gpu1", {"ssh_hostname": "192.0.2.11", **_ssh, **_rollpin, **_host}),
    ("gpu2", {"ssh_hostname": "192.0.2.12", **_ssh, **_rollpin, **_host}),
]
