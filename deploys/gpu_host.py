"""What a host must be before anything is served on it; inventory data `gpu_host` says the details.

pyinfra inventory/lab.py deploys/gpu_host.py
"""

from pyinfra import host
from roles.gpu_host import gpu_host

gpu_host(data=host.data.get("gpu_host") or {})
