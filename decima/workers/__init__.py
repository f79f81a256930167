"""Worker pools for independent work items: processes of this machine, or actors of a Ray cluster.

``pool`` chooses and describes them, and has the actors; ``processes`` has the processes.
"""
