# Second boot: the same module after the power cut, on a machine whose CPU caches are in the power-fail domain too
# (eADR).
terrace tier list >/tmp/list
expect "tier list: the region's domain is cpu_cache, eADR" grep -Eq '^region0 .* cpu_cache +eADR$' /tmp/list
mkdir -p /mnt/pmem0
expect "the file system mounts again" mount -t xfs -o dax=always /dev/pmem0 /mnt/pmem0
expect "the message that was acknowledged before the power was cut is there" \
    sh -c 'terrace message list --data /mnt/pmem0/data | grep -q POWERCUT1'
expect "verify finds everything sound" terrace verify --data /mnt/pmem0/data
cat /tmp/out

node_settings
serve_node
expect "the node's journal is on eADR and writes no line back" grep -Eq \
    'MAP_SYNC, by line, persistence domain eADR, write-back none, power-fail-safe' /tmp/status
expect "the next message is acknowledged with AA" sh -c 'terrace message send /tmp/message.hl7 | grep -q "MSA|AA|POWERCUT1"'
expect "the node stops" terrace stop --data /mnt/pmem0/data
expect "a poisoned page is an error that names the range, and all else is read" dax_check /mnt/pmem0/poisoned
cat /tmp/out
