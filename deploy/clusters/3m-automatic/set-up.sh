#!/bin/sh
# Run it once, on one host, when etcd runs on all three. It makes the secret of the members and the password of their account in etcd,
# and lets that account read and write the keys of rocketpy, and nobody else anything. Copy the three files
# to the other hosts afterwards: if this host is lost, etcd can be repaired with root's password only.
# /etc/rocketpy belongs to the servers: root's password lies in a directory of root, and a file that they may have put there is refused.
set -euC
umask 077
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS="${ETCD:-http://10.0.0.1:2379}"

mkdir -p /etc/rocketpy-root
for file in /etc/rocketpy/ha-secret /etc/rocketpy/etcd-password /etc/rocketpy-root/etcd-root-password; do
    if [ -L $file ] || { [ -e $file ] && [ ! -O $file ]; }; then
        echo "$file is a link, or of another user: remove it" >&2
        exit 1
    fi
    [ -s $file ] || head -c 24 /dev/urandom | base64 > $file
done
etcdctl --interactive=false user add root < /etc/rocketpy-root/etcd-root-password
etcdctl user grant-role root root
etcdctl role add rocketpy
etcdctl role grant-permission rocketpy --prefix=true readwrite /rocketpy/
etcdctl --interactive=false user add broker < /etc/rocketpy/etcd-password
etcdctl user grant-role broker rocketpy
etcdctl auth enable
