"""Ends the open transaction of each host by going back, also when its controller hangs.

pyinfra inventory/lab.py deploys/restore.py --limit lab1
"""

from pyinfra import host

from rollpin.operations import recovery

recovery.restored(name="Restore", service=host.data.get("service"))
