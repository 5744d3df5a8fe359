# First boot: a blank module on a machine whose power-fail domain is the memory controller (ADR). Provisions the module,
# runs a node on it, and stops after a message is acknowledged, so that the host can cut the power.
terrace tier list >/tmp/list
expect "tier list: the region's domain is memory_controller, ADR" grep -Eq '^region0 .* memory_controller +ADR$' /tmp/list
expect "tier list: a region whose labels are blank is one raw namespace" grep -Eq '^namespace0.0 +raw ' /tmp/list

expect "tier plan: more than the region has is refused with both figures" \
    sh -c 'terrace tier plan --namespaces fsdax=2GiB 2>&1 | grep -q "1008 MiB are free, 2 GiB are needed"'
expect "tier plan: a goal for this module is refused, since nothing could set it" \
    sh -c 'terrace tier plan --goal memory=50 2>&1 | grep -q "takes no goal"'
expect "tier apply without a terminal and without --yes changes nothing" \
    sh -c '! terrace tier apply </dev/null >/dev/null 2>&1 && ndctl list -N | grep -q raw'
expect "tier apply makes labels, three namespaces, a file system and a mount" \
    terrace tier apply --yes --namespaces fsdax=384MiB,devdax=256MiB,sector=128MiB
ndctl list -N | tr -d ' \n' >/tmp/namespaces
for one in '"mode":"fsdax","map":"dev","size":394264576' '"mode":"devdax","map":"dev","size":262144000' \
    '"mode":"sector","size":133005312'; do
    expect "ndctl sees what the plan promised: $one" grep -q "$one" /tmp/namespaces
done
expect "its files are mapped directly" grep -Eq '^/dev/pmem0 /mnt/pmem0 xfs .*dax=always' /proc/mounts
terrace tier list >/tmp/list
expect "tier list: files there map synchronously" grep -Eq '^/mnt/pmem0 .* always +yes$' /tmp/list
expect "tier apply again: what is in use is left alone" \
    sh -c 'terrace tier apply --yes --namespaces fsdax=512MiB 2>&1 | grep -q "full: 240 MiB are free, 512 MiB are needed"'

node_settings
serve_node
expect "the node's journal is mapped synchronously, by line, on ADR, and power-fail-safe" grep -Eq \
    'MAP_SYNC, by line, persistence domain ADR, write-back [a-z]+, power-fail-safe' /tmp/status
expect "a message is acknowledged with AA" sh -c 'terrace message send /tmp/message.hl7 | tee /tmp/answer | grep -q "MSA|AA|POWERCUT1"'
cat /tmp/answer
echo "HOST cut the power"
# The guest ends here, without sync, umount or stop.
sleep 600
