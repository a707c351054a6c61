"""The fault sweep: every fault at every boundary of a deploy, judged from outside."""
