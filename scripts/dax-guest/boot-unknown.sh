# Third boot: a machine that does not report its power-fail domain, with a second NUMA node that has memory only.
terrace tier list >/tmp/list
expect "tier list: a domain that is not told is unknown, and treated as ADR" \
    sh -c 'grep -Eq "^region0 .* unknown$" /tmp/list && grep -q "^region0: unknown, treated as ADR" /tmp/list'
expect "tier list: a node without processors is far memory" grep -Eq '^ +1  far memory +-' /tmp/list
mkdir -p /mnt/pmem0 /mnt/disk
expect "the file system mounts again" mount -t xfs -o dax=always /dev/pmem0 /mnt/pmem0
node_settings
serve_node
expect "the node's journal takes it for ADR and writes lines back" grep -Eq \
    'MAP_SYNC, by line, persistence domain unknown \(taken for ADR\), write-back c[a-z]+, power-fail-safe' /tmp/status
expect "both messages are there" sh -c '[ "$(terrace message list --data /mnt/pmem0/data | grep -c POWERCUT1)" = 2 ]'
expect "the node stops" terrace stop --data /mnt/pmem0/data

expect "tier probe measures both nodes and the mapped file system, and makes a medium of it" \
    terrace tier probe --size 16MiB --path /mnt/pmem0 --write /tmp/guest-pmem.toml
cp /tmp/out /tmp/probe
expect "it bound memory to each node and stored with a fence" \
    sh -c 'grep -q "^Memory of node 1:" /tmp/probe && grep -q "^/mnt/pmem0: xfs, MAP_SYNC" /tmp/probe && grep -q "^store and fence 4096 B" /tmp/probe'
expect "the medium is of kind pmem, and the probe left nothing there" \
    sh -c 'grep -q "kind = \"pmem\"" /tmp/guest-pmem.toml && [ -z "$(ls -d /mnt/pmem0/terrace-probe-* 2>/dev/null)" ]'

expect "xfs on an ordinary disk" sh -c 'mkfs.xfs -q -f /dev/vda && mount -t xfs /dev/vda /mnt/disk'
sed 's,/mnt/pmem0,/mnt/disk,' /tmp/terrace.toml >/tmp/disk.toml
expect "a pmem tier there is refused, and the text says what to mount" \
    sh -c '! timeout 20 terrace serve --config /tmp/disk.toml >/tmp/refused 2>&1 && cat /tmp/refused && grep -q "dax=always" /tmp/refused'
cat /tmp/out
