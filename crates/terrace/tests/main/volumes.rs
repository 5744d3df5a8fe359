//! `terrace volume` as a user runs it: made, exported, used by clients over NBD, killed, its copies lost and brought back.
//!
//! Blocks carry a number: what a client wrote last and was acknowledged must be found, or something that was written later.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, Device};
use nbd::{ClientOptions, NbdDevice, NbdUri};
use serde_json::Value;

use crate::node::{Bed, until};

const BLOCK: u64 = 4096;

/// Three tiers in folders of the bed.
const TIERS: &str = "[tiers.a]\nkind = \"file\"\npath = \"a\"\n[tiers.b]\nkind = \"file\"\npath = \"b\"\n[tiers.c]\nkind = \"file\"\npath = \"c\"\n";

const THREE: [&str; 6] = ["--copy", "a", "--copy", "b", "--copy", "c"];

pub(crate) fn bed() -> Bed {
    let bed = Bed::new();
    bed.configure(TIERS);
    bed
}

pub(crate) fn volume(bed: &Bed, args: &[&str]) -> String {
    bed.command_line(&[&["volume"], args].concat()).succeeds("")
}

pub(crate) fn create(bed: &Bed, name: &str, args: &[&str]) {
    volume(bed, &[&["create", name, "--size", "4MiB"], args].concat());
}

/// A client that gives up as soon as its server is gone.
pub(crate) fn client(socket: &Path, name: &str) -> Arc<NbdDevice> {
    let options =
        ClientOptions { reconnect_for: Duration::from_millis(1), ..ClientOptions::new(NbdUri::unix(socket, name)) };
    let mut opened = None;
    until("the export can be opened", || {
        opened = NbdDevice::connect(options.clone()).ok();
        opened.is_some()
    });
    opened.expect("it is open")
}

pub(crate) fn write(device: &NbdDevice, block: u64, number: u64) -> bool {
    let mut bytes = AlignedBuffer::zeroed(BLOCK as usize);
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&number.to_le_bytes()));
    device.write_flush(block * BLOCK, &bytes).is_ok()
}

/// The number of a block, all of whose parts must agree.
pub(crate) fn read(device: &NbdDevice, block: u64) -> u64 {
    let mut bytes = AlignedBuffer::zeroed(BLOCK as usize);
    device.read(block * BLOCK, &mut bytes).unwrap_or_else(|error| panic!("block {block}: {error}"));
    let numbers: Vec<u64> =
        bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("8 bytes"))).collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "block {block} is torn");
    numbers[0]
}

pub(crate) fn report(bed: &Bed, name: &str) -> Value {
    let ran = bed.command_line(&["volume", "status", name, "--json"]);
    let all: Value = serde_json::from_str(&ran.printed()).expect("JSON");
    all[0].clone()
}

pub(crate) fn copy_states(bed: &Bed, name: &str) -> Vec<String> {
    let report = report(bed, name);
    let copies = report["copies"].as_array().expect("a list").iter();
    copies.map(|copy| copy["state"].as_str().expect("a text").to_owned()).collect()
}

pub(crate) fn in_sync(bed: &Bed, name: &str) {
    until("all copies are in sync", || copy_states(bed, name).iter().all(|state| state == "in-sync"));
}

/// Where a copy lies.
pub(crate) fn place_of(bed: &Bed, name: &str, copy: usize) -> PathBuf {
    PathBuf::from(report(bed, name)["copies"][copy]["at"].as_str().expect("a text"))
}

/// `terrace volume export` as a process of its own; killed when the test ends.
pub(crate) struct Exporter(Child);

impl Exporter {
    pub(crate) fn start(bed: &Bed, args: &[&str]) -> Exporter {
        let log = fs::File::options().create(true).append(true).open(bed.path("log")).expect("a file");
        // Without the signal of a write beyond a limit, which is an error then.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_terrace")]);
        command.args([&["volume", "export"], args].concat()).current_dir(bed.path("."));
        command.env_remove("TERRACE_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Exporter(command.spawn().expect("the program runs"))
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }

    /// From now on writes behind so many bytes of any file are errors of the system; `unlimited` takes that back.
    pub(crate) fn limit_files(&self, bytes: &str) {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.0.id().to_string(), &format!("--fsize={bytes}:")]);
        assert!(command.status().expect("there is prlimit").success());
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it can be waited for");
    }

    fn ended(mut self) -> Option<i32> {
        self.0.wait().expect("it can be waited for").code()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // A stopped process dies too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_volume_without_a_node_is_exported_survives_a_kill_grows_and_is_deleted_with_everything() {
    let bed = bed();
    create(&bed, "disk", &[]);
    let socket = bed.data().join("nbd.sock");
    let exporter = Exporter::start(&bed, &["disk"]);
    let device = client(&socket, "disk");
    assert_eq!(device.len(), 4 << 20);
    assert!(write(&device, 3, 7));
    bed.command_line(&["status", "--data", "data"]).fails("serves volumes only");
    exporter.kill();
    let exporter = Exporter::start(&bed, &["disk"]);
    let device = client(&socket, "disk");
    assert_eq!((read(&device, 3), read(&device, 4)), (7, 0));
    bed.command_line(&["volume", "grow", "disk", "--size", "8MiB"]).fails("--stop");
    volume(&bed, &["export", "disk", "--stop"]);
    assert!(!write(&device, 5, 1), "its sessions have ended");
    volume(&bed, &["grow", "disk", "--size", "8MiB"]);
    volume(&bed, &["export", "disk", "--read-only"]);
    let device = client(&socket, "disk");
    assert_eq!((device.len(), read(&device, 3)), (8 << 20, 7));
    assert!(!write(&device, 3, 8), "read-only");
    bed.run(&["stop", "--data"]).succeeds("");
    assert_eq!(exporter.ended(), Some(0));
    let place = place_of(&bed, "disk", 0);
    assert!(place.is_dir());
    bed.command_line(&["volume", "delete", "disk"]).fails("--yes");
    volume(&bed, &["delete", "disk", "--yes"]);
    assert!(!place.exists() && !bed.data().join("volumes/disk.json").exists());
    volume(&bed, &["list"]);
}

#[test]
fn what_cannot_be_a_volume_is_refused_with_what_to_do_and_leaves_nothing_behind() {
    let bed = bed();
    for (args, why) in [
        (&["create", "v", "--size", "1MiB", "--copy", "dram"][..], "does not survive the process"),
        (&["create", "v", "--size", "1MiB", "--copy", "a", "--copy", "a"], "--share-tiers"),
        (&["create", "v", "--size", "1MiB", "--copy", "nowhere"], "there is no tier nowhere"),
        (&["create", "v", "--size", "63KiB", "--copy", "a"], "multiple of 64 KiB"),
        (&["create", "v", "--size", "0B", "--place"], "multiple of 64 KiB"),
        (&["create", "v", "--size", "100B", "--place"], "multiple of 64 KiB"),
        (&["create", "v", "--size", "18446744073709486080B"], "at most 1 PiB"),
        (&["create", "v@1", "--size", "1MiB"], "no name of a volume"),
        (&["create", "../v", "--size", "1MiB"], "no name of a volume"),
        (&["create", "v", "--size", "1MiB", "--min-copies", "2"], "min_copies"),
        (&["create", "v", "--size", "1MiB", "--prefer", "1"], "the preferred copy"),
        (&["create", "v", "--size", "1MiB", "--iops", "0"], "would stop the volume"),
        (
            &["create", "v", "--size", "1MiB", "--copy", "a", "--copy", "b", "--copy", "c", "--copy", "home"],
            "one to three copies",
        ),
        (&["create", "v", "--size", "1MiB", "--copy", "nbd+unix:///x?socket=/nowhere.sock"], "cannot connect"),
        (&["export", "none"], "there is no volume none"),
        (&["top"], "nothing serves these volumes"),
    ] {
        bed.command_line(&[&["volume"], args].concat()).fails(why);
    }
    volume(&bed, &["list"]).contains("there is no volume").then_some(()).expect("nothing is left");
    for tier in ["a", "b", "c"] {
        let below = fs::read_dir(bed.path(tier).join("volumes")).map_or(0, Iterator::count);
        assert_eq!(below, 0, "something was left on {tier}");
    }
}

#[test]
fn a_copy_that_is_missing_at_the_start_is_reported_and_used_again_when_it_is_back() {
    let bed = bed();
    create(&bed, "v", &THREE);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let socket = bed.data().join("nbd.sock");
    assert!((0..64).all(|block| write(&client_of(&bed, "v"), block, 1)));
    let (place, away) = (place_of(&bed, "v", 1), bed.path("away"));
    node.stop();
    fs::rename(&place, &away).expect("it is moved");
    let node = bed.start();
    let device = client(&socket, "v");
    assert!((0..32).all(|block| write(&device, block, 2)));
    bed.command_line(&["volume", "status", "v"]).finds("is its medium mounted?");
    until("the node has a trouble", || {
        let status: Value = serde_json::from_str(&bed.run(&["status", "--json", "--data"]).printed()).expect("JSON");
        status["troubles"]
            .as_array()
            .is_some_and(|troubles| troubles.iter().any(|trouble| trouble["matter"] == "volume"))
    });
    assert!(!place.exists(), "nothing is made below a mount point");
    fs::rename(&away, &place).expect("it is moved");
    in_sync(&bed, "v");
    // Only the returned copy and one other are left: what it missed was brought to it.
    let lost = place_of(&bed, "v", 0);
    node.kill();
    fs::remove_dir_all(lost).expect("it is removed");
    let _node = bed.start();
    let device = client(&socket, "v");
    assert!((0..32).all(|block| read(&device, block) == 2) && (32..64).all(|block| read(&device, block) == 1));
    volume(&bed, &["replace", "v", "0", "--wait"]);
    in_sync(&bed, "v");
}

pub(crate) fn client_of(bed: &Bed, name: &str) -> Arc<NbdDevice> {
    client(&bed.data().join("nbd.sock"), name)
}

#[test]
fn a_copy_is_replaced_while_a_client_writes_and_its_former_place_is_cleared() {
    let bed = bed();
    create(&bed, "v", &THREE);
    let _node = bed.start();
    volume(&bed, &["export", "v"]);
    let former = place_of(&bed, "v", 2);
    let device = client_of(&bed, "v");
    thread::scope(|scope| {
        let writer = scope.spawn(|| (1..=20_u64).all(|round| (0..256).all(|block| write(&device, block, round))));
        volume(&bed, &["replace", "v", "2", "--copy", "home", "--wait"]);
        assert!(writer.join().expect("no panic"), "no write fails meanwhile");
    });
    until("the former place is cleared", || !former.exists());
    assert!(place_of(&bed, "v", 2).starts_with(bed.data()));
    assert!((0..256).all(|block| read(&device, block) == 20));
    volume(&bed, &["scrub", "v"]);
}

#[test]
fn with_too_few_copies_writes_wait_and_a_loss_is_given_up_only_when_that_is_said() {
    let bed = bed();
    create(&bed, "v", &THREE);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    assert!((0..16).all(|block| write(&device, block, 5)));
    let places = [0, 1].map(|copy| place_of(&bed, "v", copy));
    node.stop();
    fs::remove_dir_all(&places[0]).expect("it is removed");
    fs::rename(&places[1], bed.path("away")).expect("it is moved");
    let node = bed.start();
    until("it is known that it cannot be opened", || report(&bed, "v")["state"] == "failed");
    bed.command_line(&["volume", "status", "v"]).finds("accept-loss");
    bed.command_line(&["volume", "replace", "v", "0"]).fails("cannot be opened");
    bed.command_line(&["volume", "accept-loss", "v"]).fails("--yes");
    fs::rename(bed.path("away"), &places[1]).expect("it is moved");
    until("two are enough", || report(&bed, "v")["state"] == "open");
    bed.command_line(&["volume", "accept-loss", "v", "--yes"]).fails("serves writes");
    volume(&bed, &["replace", "v", "0", "--wait"]);
    node.stop();
    for copy in [0, 1] {
        fs::remove_dir_all(place_of(&bed, "v", copy)).expect("it is removed");
    }
    let _node = bed.start();
    until("one is not enough", || report(&bed, "v")["state"] == "failed");
    volume(&bed, &["accept-loss", "v", "--yes"]);
    let device = client_of(&bed, "v");
    assert!((0..16).all(|block| read(&device, block) == 5));
    assert!(write(&device, 0, 6));
    for copy in ["0", "1"] {
        volume(&bed, &["replace", "v", copy, "--wait"]);
    }
    in_sync(&bed, "v");
}

#[test]
fn after_every_kill_under_load_each_block_has_what_was_acknowledged_last_or_something_later() {
    const BLOCKS: u64 = 512;
    const CLIENTS: u64 = 3;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, rounds) = (number("SEED").unwrap_or(1), number("ROUNDS").unwrap_or(6));
    println!("SEED={seed} ROUNDS={rounds}");
    let bed = bed();
    create(&bed, "v", &["--copy", "a,cache=b:1MiB", "--copy", "b", "--copy", "c"]);
    let mut random = fastrand::Rng::with_seed(seed);
    // For each block: the last acknowledged number and the last that was sent.
    let mut known = vec![(0, 0); BLOCKS as usize];
    for round in 1..=rounds {
        let node = bed.start();
        volume(&bed, &["export", "v"]);
        let device = client_of(&bed, "v");
        for (block, (acknowledged, sent)) in known.iter_mut().enumerate() {
            let found = read(&device, block as u64);
            assert!(
                (*acknowledged..=*sent).contains(&found),
                "round {round}, block {block}: {found} is not in {acknowledged}..={sent}"
            );
            (*acknowledged, *sent) = (found, found);
        }
        let pause = Duration::from_millis(random.u64(100..700));
        let written = thread::scope(|scope| {
            let writers: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (bed, known, mut random) = (&bed, &known, fastrand::Rng::with_seed(random.u64(..)));
                    scope.spawn(move || write_until_the_end(bed, known, number, round, &mut random))
                })
                .collect();
            thread::sleep(pause);
            node.kill();
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(!written.is_empty(), "something was written in round {round}");
        for (block, acknowledged, sent) in written {
            let known = &mut known[block as usize];
            *known = (known.0.max(acknowledged), known.1.max(sent));
        }
    }
    let _node = bed.start();
    in_sync(&bed, "v");
    assert_eq!(volume(&bed, &["scrub", "v", "--json"]).matches("\"damaged\": 0").count(), 1);
}

/// Writes blocks of its own until the server is gone; returns each with the last acknowledged and the last sent number.
fn write_until_the_end(
    bed: &Bed,
    known: &[(u64, u64)],
    number: u64,
    round: u64,
    random: &mut fastrand::Rng,
) -> Vec<(u64, u64, u64)> {
    let device = client_of(bed, "v");
    let mine: Vec<u64> = (0..known.len() as u64).filter(|block| block % 3 == number).collect();
    let mut written: Vec<(u64, u64, u64)> =
        mine.iter().map(|block| (*block, known[*block as usize].0, known[*block as usize].1)).collect();
    for count in 1.. {
        let at = random.usize(..written.len());
        let (block, acknowledged, sent) = &mut written[at];
        let value = round << 32 | count;
        *sent = value;
        if !write(&device, *block, value) {
            return written;
        }
        *acknowledged = value;
    }
    unreachable!("a server that is killed ends this")
}

#[test]
fn a_copy_on_another_node_that_hangs_is_left_out_and_comes_back_and_a_former_owner_is_refused() {
    let bed = bed();
    volume(&bed, &["create", "place", "--size", "200MiB", "--place", "--data", "other"]);
    let far = Exporter::start(&bed, &["place", "--data", "other"]);
    let address = format!("nbd+unix:///place?socket={}", bed.path("other/nbd.sock").display());
    drop(client(&bed.path("other/nbd.sock"), "place"));
    create(&bed, "v", &["--copy", "a", "--copy", "b", "--copy", &address]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    assert!((0..64).all(|block| write(&device, block, 1)));
    assert_eq!(report(&bed, "v")["copies"][2]["is_unfenced"], false);
    far.signal("-STOP");
    let began = Instant::now();
    assert!(write(&device, 0, 2), "it is acknowledged without the copy that hangs");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(copy_states(&bed, "v")[2], "out");
    far.signal("-CONT");
    in_sync(&bed, "v");
    // Another owner: the place counts its terms, and the one before is refused.
    let epoch: u64 = report_at(&bed, "other", "place")["epoch"].as_str().expect("a text").parse().expect("a number");
    let takeover = ClientOptions {
        epoch: Some(epoch + 1),
        ..ClientOptions::new(NbdUri::unix(&bed.path("other/nbd.sock"), "place"))
    };
    let usurper = NbdDevice::connect(takeover).expect("a higher term is taken");
    assert!(usurper.is_fenced());
    assert!(write(&device, 1, 3), "the others are enough");
    until("the former owner has lost this copy", || copy_states(&bed, "v")[2] == "out");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(copy_states(&bed, "v")[2], "out", "it does not come back under an older term");
    node.stop();
}

pub(crate) fn report_at(bed: &Bed, data: &str, name: &str) -> Value {
    let all: Value =
        serde_json::from_str(&bed.command_line(&["volume", "status", name, "--json", "--data", data]).printed())
            .expect("JSON");
    all[0].clone()
}

#[test]
fn a_description_that_cannot_be_read_stops_no_other_volume_and_a_half_made_one_can_be_deleted() {
    let bed = bed();
    create(&bed, "good", &[]);
    create(&bed, "bad", &[]);
    create(&bed, "half", &[]);
    let file = |name: &str| bed.data().join("volumes").join(format!("{name}.json"));
    fs::write(file("bad"), "{").expect("it is written");
    let half = fs::read_to_string(file("half")).expect("it is read").replace("\"ready\"", "\"making\"");
    fs::write(file("half"), half).expect("it is written");
    let _node = bed.start();
    volume(&bed, &["export", "good"]);
    assert!(write(&client_of(&bed, "good"), 0, 1));
    bed.command_line(&["volume", "status", "bad"]).fails("cannot be understood");
    bed.command_line(&["volume", "export", "half"]).fails("was not made completely");
    bed.command_line(&["volume", "status", "half"]).finds("terrace volume delete half");
    volume(&bed, &["delete", "half", "--yes"]);
    assert!(!file("half").exists());
}

#[test]
fn a_backup_and_a_check_say_that_volumes_are_not_in_them_and_how_to_copy_or_check_one() {
    let bed = bed();
    create(&bed, "v", &[]);
    let _node = bed.start();
    bed.run(&["verify", "--data"]).succeeds("volumes are not read here (v): `terrace volume scrub v`");
    assert!(bed.run(&["backup", "kept", "--data"]).succeeds("volumes are not in it (v)").contains("nbdcopy"));
}

#[test]
fn a_limit_of_requests_bounds_what_all_clients_get_together() {
    let bed = bed();
    create(&bed, "v", &["--iops", "50"]);
    let _node = bed.start();
    volume(&bed, &["export", "v"]);
    let began = Instant::now();
    thread::scope(|scope| {
        for number in 0..2 {
            let bed = &bed;
            scope.spawn(move || assert!((0..60).all(|block| write(&client_of(bed, "v"), block * 2 + number, 1))));
        }
    });
    // 120 writes at 50 a second, less what may be saved up.
    assert!(began.elapsed() > Duration::from_millis(1_500), "{:?}", began.elapsed());
}

#[test]
fn a_node_whose_store_lies_on_a_volume_keeps_every_message_while_copies_go_and_return_and_after_kills() {
    let bed = Bed::new();
    let placed = "[tiers.mirror]\nkind = \"volume\"\nvolume = \"node\"\n[placement]\njournal = \"mirror\"\nwrite_image_journal = \"mirror\"\ndata = \"mirror\"\n";
    bed.configure(&format!("{TIERS}{placed}"));
    bed.refuses("there is no volume node");
    volume(&bed, &["create", "place", "--size", "500MiB", "--place", "--data", "other"]);
    let address = format!("nbd+unix:///place?socket={}", bed.path("other/nbd.sock").display());
    let mut far = Some(Exporter::start(&bed, &["place", "--data", "other"]));
    drop(client(&bed.path("other/nbd.sock"), "place"));
    volume(&bed, &["create", "node", "--size", "256MiB", "--copy", "a", "--copy", "b", "--copy", &address]);
    let mut sent = Vec::new();
    for round in 0..4 {
        let node = bed.start();
        for number in 0..10 {
            let id = format!("M{round}-{number}");
            node.send(&id);
            sent.push(id);
            match (round, number) {
                (0 | 2, 3) => far.take().expect("it runs").kill(),
                (1 | 2, 5) => far = Some(Exporter::start(&bed, &["place", "--data", "other"])),
                _ => {}
            }
        }
        if round == 1 {
            in_sync(&bed, "node");
        }
        bed.command_line(&["volume", "export", "node"]).fails("keeps its own data");
        bed.command_line(&["volume", "delete", "node", "--yes"]).fails("keeps its own data");
        if round % 2 == 0 {
            node.kill()
        } else {
            node.stop()
        }
        bed.run(&["message", "list", "--data"]).fails("only the node itself can read");
        if round == 1 {
            fs::remove_dir_all(place_of(&bed, "node", 0)).expect("it is removed");
            let node = bed.start();
            volume(&bed, &["replace", "node", "0", "--wait"]);
            in_sync(&bed, "node");
            node.stop();
        }
    }
    let _node = bed.start();
    assert_eq!(bed.stored(), sent, "every acknowledged message, in order");
    assert_eq!(volume(&bed, &["scrub", "node", "--json"]).matches("\"damaged\": 0").count(), 1);
}

#[test]
fn an_encrypted_volume_has_no_plaintext_on_its_media_and_opens_only_with_its_secret() {
    use std::os::unix::fs::PermissionsExt;
    let bed = bed();
    let key = bed.path("key");
    fs::write(&key, [7; 64]).expect("it is written");
    bed.command_line(&["volume", "create", "v", "--size", "4MiB", "--key-file", "key"]).fails("chmod 600");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is changed");
    create(&bed, "v", &["--copy", "a,cache=c:1MiB", "--copy", "b", "--key-file", "key"]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    let number = u64::from_le_bytes(*b"SECRETS!");
    assert!((0..64).all(|block| write(&device, block, number)));
    let mut block = AlignedBuffer::zeroed(BLOCK as usize);
    block[100..108].copy_from_slice(b"SECRETS!");
    device.write(70 * BLOCK, &block).expect("it is written");
    node.stop();
    let mut looked_at = 0;
    for tier in ["a", "b", "c"] {
        for file in files_below(&bed.path(tier)) {
            let bytes = fs::read(&file).expect("it is read");
            looked_at += bytes.len();
            assert!(!bytes.windows(8).any(|part| part == b"SECRETS!"), "{} has plaintext", file.display());
        }
    }
    assert!(looked_at > 8 << 20, "{looked_at} bytes are no two copies");
    let node = bed.start();
    let device = client_of(&bed, "v");
    assert!((0..64).all(|block| read(&device, block) == number) && read(&device, 65) == 0);
    let mut found = AlignedBuffer::zeroed(BLOCK as usize);
    device.read(70 * BLOCK, &mut found).expect("it is read");
    assert_eq!(found[..], block[..]);
    node.stop();
    fs::write(&key, [8; 64]).expect("it is written");
    let _node = bed.start();
    until("it is not opened", || report(&bed, "v")["state"] == "failed");
    bed.command_line(&["volume", "status", "v"]).finds("does not contain the secret");
    fs::write(&key, [7; 64]).expect("it is written");
    assert_eq!(read(&client_of(&bed, "v"), 5), number, "it is opened once the secret is back");
}

#[test]
fn an_encrypted_volume_takes_another_key_file_while_it_is_used_and_a_new_data_key_at_the_next_start() {
    let bed = bed();
    for name in ["key", "second"] {
        fs::write(bed.path(name), name.repeat(16)).expect("it is written");
        fs::set_permissions(bed.path(name), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("it is changed");
    }
    create(&bed, "v", &["--copy", "a", "--copy", "b", "--key-file", "key"]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    assert!(write(&device, 1, 1));
    volume(&bed, &["rekey", "v", "--key-file", "second", "--new-data-key"]);
    fs::remove_file(bed.path("key")).expect("it is removed");
    assert!(write(&device, 2, 2), "it goes on");
    node.stop();
    let (_node, device) = (bed.start(), client_of(&bed, "v"));
    assert!(read(&device, 1) == 1 && read(&device, 2) == 2, "what the former data key has encrypted");
    assert!(write(&device, 3, 3) && read(&device, 3) == 3);
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn a_copy_that_a_volume_cannot_do_without_is_not_taken_away() {
    let bed = bed();
    create(&bed, "one", &[]);
    create(&bed, "both", &["--copy", "a", "--copy", "b", "--min-copies", "2"]);
    let _node = bed.start();
    for (name, copy) in [("one", "0"), ("both", "1")] {
        volume(&bed, &["export", name]);
        bed.command_line(&["volume", "replace", name, copy]).fails("writes would wait");
        assert!(write(&client_of(&bed, name), 0, 1), "{name} goes on");
        assert_eq!(report(&bed, name)["state"], "open");
    }
    bed.command_line(&["volume", "replace", "one", "7"]).fails("has the copies 0 to 0");
}

#[test]
fn a_description_that_was_changed_by_hand_removes_nothing_but_places_of_copies() {
    let bed = bed();
    create(&bed, "v", &["--copy", "a"]);
    let precious = bed.path("precious");
    fs::create_dir_all(precious.join("x")).expect("a folder");
    let file = bed.data().join("volumes/v.json");
    let text = fs::read_to_string(&file).expect("it is read");
    let place = place_of(&bed, "v", 0).display().to_string();
    fs::write(&file, text.replace(&place, &precious.display().to_string())).expect("it is written");
    bed.command_line(&["volume", "delete", "v", "--yes"]).fails("is no place of a copy");
    assert!(precious.join("x").is_dir());
}
