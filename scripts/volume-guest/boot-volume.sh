# The guest of test-volume-guest.sh: its disk is the export of a volume. With `first` on the kernel's command line it makes a file
# system there. It writes file after file, as the host can compute them, and prints `SYNCED ROUND NUMBER BYTES .` after the sync of each:
# from then on that file has to survive everything. The host ends it.
round=$(sed 's/.*round=\([0-9]*\).*/\1/' /proc/cmdline)
if grep -qw first /proc/cmdline; then
    expect "round $round: the guest makes a file system on the export" mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/vda
fi
mkdir -p /mnt/disk
expect "round $round: it mounts" mount -t ext4 -o errors=panic /dev/vda /mnt/disk
mkdir -p "/mnt/disk/round-$round"

# Writes that nobody syncs, so that more than the files below is on its way when the guest ends.
while :; do
    dd if=/dev/urandom of="/mnt/disk/unsynced-$round" bs=64k count=48
done >/dev/null 2>&1 &

number=0
while :; do
    number=$((number + 1))
    bytes=$((number * 7919 % 300000 + 1))
    yes "round $round file $number of a guest on a volume" | head -c "$bytes" >/tmp/file
    if dd if=/tmp/file of="/mnt/disk/round-$round/$number" bs=64k conv=fsync 2>/tmp/error && sync; then
        echo "SYNCED $round $number $bytes ."
    else
        echo "FAULT round $round file $number: $(tail -1 /tmp/error)"
        sleep 1
    fi
done
