"""What is copied into the lab's engine image. Standard library only; runs on Debian's Python.

`sglang/` goes to the image's dist-packages, so that a recipe's command line runs verbatim.
"""
