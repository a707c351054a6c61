"""What the lab does quicker than life. A deploy says aloud that these were shortened."""

# a profile's idle minutes, watched for this long instead
rollpin_idle = "2s"
# how long a started service must stay healthy
rollpin_settle = "2s"
