"""Real nodes of a sandbox: on this machine a containerd and a kubelet each, in namespaces and cgroups of their own.

The control plane stays on the loopback of this machine. The nodes are in one private network, each with mounts and
processes of its own, so that their end is the end of the process that holds these namespaces.
"""
