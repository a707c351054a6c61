"""A lab of real hosts on one Linux machine: systemd, sshd and Docker in systemd-nspawn.

In the order of `rollpin lab up`:

    machine.py     what this machine needs, and running its programs
    state.py       where a lab keeps its things; lab.json
    base.py        Debian trees, built once and cached
    network.py     the lab's bridge and subnet
    dress.py       what makes a base tree one particular host (model.py: the model it holds)
    power.py       on and off; supervisor.py keeps one host
                   (cgroups.py and process.py find, later, what belongs to a lab)
    registry.py    the lab's registry; images.py writes the images into it (engine/ is in them)
    host.py        a host, as tests and people use it
    furnish.py     the containers that stand on hosts; reset
    up.py down.py  the two stories

From Python: `state.load()` is the lab of ROLLPIN_LAB, `host.hosts(lab)` its hosts,
`host.open_host("lab1")` one of them; `images.push_variant` and `images.move_tag` change the
registry.
"""
