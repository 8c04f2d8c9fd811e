#!/usr/bin/env bash
# Runs a Ceph RADOS gateway on loopback, to test the blob store with the S3 server of a real storage system.
#
#   eval "$(deploy/ceph-rgw.sh start)"    starts it and sets S3_TEST_URL and the AWS_* variables, which the tests read
#   deploy/ceph-rgw.sh stop               stops it and deletes everything that was stored
#
# It runs one monitor, one storage daemon that keeps objects in memory, and one gateway. All data is lost when it stops.
# Debian: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd curl
# CEPH_DIR is its directory (default /tmp/peltier-ceph) and CEPH_RGW_PORT its port (default 7480).
set -euo pipefail

directory=${CEPH_DIR:-/tmp/peltier-ceph}
port=${CEPH_RGW_PORT:-7480}
export CEPH_CONF=$directory/ceph.conf
export AWS_ACCESS_KEY_ID=peltier AWS_SECRET_ACCESS_KEY=peltier-tests AWS_REGION=us-east-1
bucket=peltier-tests

configure() {
    # Without an explicit address the storage daemon would listen on every network.
    cat >"$CEPH_CONF" <<EOF
[global]
fsid = $(uuidgen)
mon initial members = a
mon host = [v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = $directory/\$name.keyring
run dir = $directory
pid file = $directory/\$name.pid
admin socket = $directory/\$name.asok
log file = $directory/\$name.log
mon cluster log file = $directory/cluster.log
mon data = $directory/mon
osd data = $directory/osd
mon allow pool size one = true
mon data avail warn = 1
mon data avail crit = 1
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon max pg per osd = 1000
rgw frontends = beast endpoint=127.0.0.1:$port

[osd]
public addr = 127.0.0.1
public bind addr = 127.0.0.1
cluster addr = 127.0.0.1
EOF
}

start_monitor() {
    ceph-authtool --create-keyring "$directory/mon.a.keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool --create-keyring "$directory/client.admin.keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool "$directory/mon.a.keyring" --import-keyring "$directory/client.admin.keyring"
    monmaptool --create --fsid "$(ceph-conf --lookup fsid)" \
        --addv a "[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]" "$directory/monmap"
    ceph-mon -i a --mkfs --monmap "$directory/monmap" --keyring "$directory/mon.a.keyring"
    ceph-mon -i a
}

start_storage() {
    local id
    id=$(uuidgen)
    ceph osd new "$id"
    mkdir "$directory/osd"
    ceph auth get-or-create osd.0 mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' \
        -o "$directory/osd.0.keyring"
    ceph-osd -i 0 --mkfs --osd-uuid "$id"
    ceph-osd -i 0
}

start_gateway() {
    ceph auth get-or-create client.rgw.a mon 'allow rw' osd 'allow rwx' -o "$directory/client.rgw.a.keyring"
    radosgw-admin user create --uid=peltier --display-name=peltier \
        --access-key="$AWS_ACCESS_KEY_ID" --secret-key="$AWS_SECRET_ACCESS_KEY"
    radosgw -n client.rgw.a
    curl --fail --silent --retry 60 --retry-delay 1 --retry-connrefused -X PUT \
        --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        "http://127.0.0.1:$port/$bucket"
}

start() {
    [[ ! -e $directory ]] || { echo "error: $directory exists; stop that gateway first" >&2; exit 1; }
    install -d -m 700 "$directory"
    configure
    # The programs' messages go to standard error; standard output is for eval.
    { start_monitor; start_storage; start_gateway; } >&2
    echo "export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY AWS_REGION=$AWS_REGION"
    echo "export S3_TEST_URL='s3://$bucket?endpoint=http://127.0.0.1:$port&allow_http=true'"
}

stop() {
    local file pid
    for file in "$directory"/*.pid; do
        [[ -e $file ]] || continue
        pid=$(<"$file")
        kill "$pid" 2>/dev/null || continue
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    done
    rm -rf "$directory"
}

case ${1-} in
start | stop) "$1" ;;
*)
    echo "usage: $0 start|stop" >&2
    exit 2
    ;;
esac
