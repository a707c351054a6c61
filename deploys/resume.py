"""Goes on with the open transaction of each host, when its controller is gone.

pyinfra inventory/lab.py deploys/resume.py --limit lab1
"""

from pyinfra import host

from rollpin.operations import resume

resume.resumed(name="Resume", service=host.data.get("service"))
