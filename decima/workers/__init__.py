"""Worker pools for independent work items: processes of this machine, or actors of a Ray cluster.

``pool`` chooses and describes them, ``processes`` and ``ray`` implement them.
"""
