"""A real Kubernetes of one node on this machine, without an image registry, for `make test-kubernetes`.

programs    builds Kubernetes and CoreDNS, and the Debian in which they run
node        runs etcd, the control plane, containerd, kubelet, kube-proxy and CoreDNS in namespaces of their own
cluster     kubectl, images, volumes, and the page docs/run/kubernetes.md followed in a copy of deploy/kubernetes
clients     pods that send and consume
"""
