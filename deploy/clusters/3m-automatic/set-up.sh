#!/bin/sh
# Run it once, on one host, when etcd runs on all three. It makes the secret of the members and the password of their account in etcd,
# and lets that account read and write the keys of rocketpy, and nobody else anything. Copy the three files
# to the other hosts afterwards: if this host is lost, etcd can be repaired with root's password only.
set -eu
umask 077
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS="${ETCD:-http://10.0.0.1:2379}"

for file in ha-secret etcd-password etcd-root-password; do
    test -s /etc/rocketpy/$file || head -c 24 /dev/urandom | base64 > /etc/rocketpy/$file
done
etcdctl --interactive=false user add root < /etc/rocketpy/etcd-root-password
etcdctl user grant-role root root
etcdctl role add rocketpy
etcdctl role grant-permission rocketpy --prefix=true readwrite /rocketpy/
etcdctl --interactive=false user add broker < /etc/rocketpy/etcd-password
etcdctl user grant-role broker rocketpy
etcdctl auth enable
