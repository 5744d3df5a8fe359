//! Recordings of a real store: distances against exact ones, what is in the file, what a kill leaves, who is refused.

use std::collections::HashSet;

use profile::reuse::{ReuseCounts, StackDistances, mean_absolute_error};
use profile::{Profile, ProfileReader, Summary};
use store::{Options, TreeId};

use super::*;

/// Keys and values whose bytes must not be in a profile.
const SECRET: &[u8] = b"MSH|^~\\&|PATIENT-OF-THE-TEST";

fn store() -> Store {
    let options = Options { background: false, ..Options::default() };
    Store::in_memory(options).expect("there is memory")
}

/// A recording of so many seconds that fits on a small disk.
fn short_of(seconds: u64) -> StartRecording {
    StartRecording { limit_bytes: 16 << 20, ..StartRecording::of(seconds) }
}

/// A tree with so many rows, some of them in extents.
fn filled(store: &Store, rows: u32) -> TreeId {
    let mut transaction = store.begin();
    let tree = transaction.create_tree("hl7.messages").expect("it is new");
    for row in 0..rows {
        let mut value = SECRET.repeat(8);
        if row % 50 == 0 {
            value = SECRET.repeat(1000);
        }
        transaction.put(tree, &key(row), &value).expect("room");
    }
    let lsn = transaction.commit().expect("room");
    store.wait_visible(lsn).expect("no fault");
    tree
}

fn key(row: u32) -> Vec<u8> {
    [SECRET, format!("{row:08}").as_bytes()].concat()
}

fn read(store: &Store, tree: TreeId, rows: u32, reads: u32) {
    let mut random = fastrand::Rng::with_seed(3);
    let snapshot = store.snapshot();
    for _ in 0..reads {
        // Few rows are read often.
        let row = (random.f64() * random.f64() * f64::from(rows)) as u32;
        snapshot.get(tree, &key(row)).expect("no fault").expect("it is there");
    }
}

fn shared(data: &Path, store: &Store) -> Shared {
    let (folder, clock) = (ProfileFolder::of(data), Clock::fixed(0));
    Shared { folder, store: store.clone(), clock, state: Mutex::default(), wake: Condvar::new(), stop: Arc::default() }
}

fn start(profiling: &Profiling, request: StartRecording) {
    profiling.handle(ProfileRequest::Start(request)).expect("it starts");
}

fn stopped(profiling: &Profiling) -> RecordingStatus {
    let ProfileAnswer::Report(report) = profiling.handle(ProfileRequest::Stop).expect("it stops") else {
        panic!("another answer");
    };
    report.recording.expect("one was recorded")
}

fn whole(data: &Path, name: &str) -> PathBuf {
    data.join("profiles").join(format!("{name}.tprof"))
}

/// The exact distances of the accesses that a profile has all of.
fn exact(path: &Path) -> (Summary, ReuseCounts) {
    let mut reader = ProfileReader::open(path).expect("a profile");
    let (mut distances, mut counts) = (StackDistances::default(), ReuseCounts::default());
    while let Some(chunk) = reader.next_chunk().expect("reads") {
        for entry in chunk {
            let distance = distances.access(entry.hash, entry.bytes.into());
            if !entry.is_new {
                counts.count_exact(distance);
            }
        }
    }
    (reader.summary().clone(), counts)
}

#[test]
fn distances_of_a_sample_are_those_of_the_whole_trace_of_the_same_run() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let tree = filled(&store, 20_000);
    let shared = shared(data.path(), &store);
    let request = StartRecording { name: Some("run".into()), keys: 512, ..short_of(3600) };
    let mut recording = Recording::begin(&shared, &request).expect("it begins");
    recording.without_pace();
    for _ in 0..8 {
        // As many as a buffer holds.
        read(&store, tree, 20_000, 450);
        recording.save_for_tests().expect("room");
    }
    assert!(!recording.finish_for_tests(&shared).expect("room"), "nothing was lost");
    let (summary, exact) = exact(&whole(data.path(), "run"));
    assert_eq!(summary.stream_rate, 1.0, "the stream is the whole trace");
    assert_eq!(exact.accesses, summary.totals().total().reuse.accesses, "every access is in the stream, and counted");
    assert!(exact.accesses > 8 * 450 * 2, "{}", exact.accesses);
    let sampled = summary.totals().total().reuse.curve();
    let error = mean_absolute_error(&sampled, &exact.curve(), summary.touched_bytes, 100);
    assert!(error < 0.03, "{error}");
    let messages = summary.structures.iter().position(|name| name == "messages").expect("a structure");
    let used = &summary.totals().structures[messages];
    assert!(used.reads >= 8 * 450 && used.writes == 0, "{used:?}");
    assert!(summary.node.is_some_and(|node| node.cache.misses + node.cache.near_hits > 0));
}

#[test]
fn a_profile_has_no_key_no_value_and_no_page_number() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let tree = filled(&store, 3000);
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    start(&profiling, StartRecording { name: Some("run".into()), ..short_of(3600) });
    read(&store, tree, 3000, 1000);
    assert_eq!(stopped(&profiling).state, RecordingState::Complete);
    let path = whole(data.path(), "run");
    let mut everything = std::fs::read(&path).expect("it is there");
    let mut reader = ProfileReader::open(&path).expect("a profile");
    everything.extend(serde_json::to_vec(reader.summary()).expect("plain data"));
    let mut hashes = HashSet::new();
    while let Some(chunk) = reader.next_chunk().expect("reads") {
        hashes.extend(chunk.iter().map(|entry| entry.hash));
    }
    for hash in &hashes {
        everything.extend(hash.to_le_bytes());
    }
    let contains = |wanted: &[u8]| everything.windows(wanted.len()).any(|window| window == wanted);
    for secret in [SECRET, b"PATIENT", b"00000017", b"hl7.messages"] {
        assert!(!contains(secret), "{:?}", String::from_utf8_lossy(secret));
    }
    // Page numbers are small: as hashes they would show.
    assert!(hashes.len() > 50 && hashes.iter().all(|hash| *hash > u64::from(u32::MAX)), "{} hashes", hashes.len());
}

#[test]
fn one_recording_at_a_time_and_what_is_impossible_is_refused_with_the_reason() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    let refused = |request: ProfileRequest| profiling.handle(request).expect_err("it is refused").to_string();
    assert!(refused(ProfileRequest::Stop).contains("nothing is being recorded"));
    for bad in [
        StartRecording { name: Some("../x".into()), ..short_of(60) },
        short_of(0),
        short_of(SECONDS_MAX + 1),
        StartRecording { limit_bytes: 1, ..short_of(60) },
        StartRecording { keys: 1 << 20, ..short_of(60) },
    ] {
        refused(ProfileRequest::Start(bad));
    }
    start(&profiling, StartRecording { name: Some("a".into()), ..short_of(60) });
    assert!(refused(ProfileRequest::Start(short_of(60))).contains("already"));
    assert!(refused(ProfileRequest::Remove { name: "a".into() }).contains("being recorded"));
    assert_eq!(stopped(&profiling).state, RecordingState::Complete);
    let again = StartRecording { name: Some("a".into()), ..short_of(60) };
    assert!(refused(ProfileRequest::Start(again)).contains("a profile a already"));
    profiling.handle(ProfileRequest::Remove { name: "a".into() }).expect("it is there");
    assert!(refused(ProfileRequest::Read { name: "a".into(), offset: 0, fetch: None }).contains("no profile a"));
}

#[test]
fn the_end_of_its_time_or_of_the_node_ends_a_recording_and_there_is_a_profile() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    start(&profiling, StartRecording { name: Some("short".into()), ..short_of(1) });
    let ended = loop {
        let status = profiling.recording().expect("one is recorded");
        if status.state != RecordingState::Running {
            break status;
        }
        std::thread::yield_now();
    };
    assert_eq!((ended.state, ended.why.as_str()), (RecordingState::Complete, "its time was over"));
    start(&profiling, StartRecording { name: Some("long".into()), ..short_of(3600) });
    profiling.end();
    assert!(!store.access_tap().is_on());
    for name in ["short", "long"] {
        Profile::read(&whole(data.path(), name)).expect("whole");
    }
}

#[test]
fn memory_stays_within_its_bound_while_millions_of_pages_are_used() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let tree = filled(&store, 3000);
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    start(&profiling, StartRecording { name: Some("run".into()), ..short_of(3600) });
    for _ in 0..20 {
        read(&store, tree, 3000, 20_000);
    }
    let status = stopped(&profiling);
    assert_eq!(status.state, RecordingState::Complete);
    assert!(status.memory_bytes > 0 && status.memory_bytes <= MEMORY_BYTES_MAX, "{status:?}");
    assert!(status.rate < 1.0, "so many accesses are not all recorded: {status:?}");
    let summary = Profile::read(&whole(data.path(), "run")).expect("whole").summary;
    let node = summary.node.as_ref().expect("of a node");
    assert_eq!((node.dropped, node.left_out), (status.dropped, status.left_out));
    assert!(summary.totals().total().reuse.accesses >= 20 * 20_000, "all are counted");
}

#[test]
fn what_a_killed_process_has_left_is_a_profile_that_says_so_after_the_next_start() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let tree = filled(&store, 3000);
    // The thread is not run: its process was killed after it had saved.
    let shared = shared(data.path(), &store);
    let request = StartRecording { name: Some("cut".into()), ..short_of(3600) };
    let mut recording = Recording::begin(&shared, &request).expect("it begins");
    read(&store, tree, 3000, 200);
    recording.save_for_tests().expect("room");
    read(&store, tree, 3000, 200);
    drop(recording);
    store.access_tap().stop();
    let part = shared.folder.part("cut");
    let mut torn = std::fs::read(&part).expect("a part");
    assert!(Profile::read(&part).is_err_and(|error| error.to_string().contains("recover")), "it is not whole");
    torn.extend(b"STRM the begin of a section that was cut off");
    std::fs::write(&part, &torn).expect("writes");

    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    let status = loop {
        let status = profiling.recording().expect("it was interrupted");
        if status.state != RecordingState::Recovering {
            break status;
        }
        std::thread::yield_now();
    };
    assert_eq!((status.state, status.name.as_str()), (RecordingState::Interrupted, "cut"), "{status:?}");
    assert!(!part.exists());
    let summary = Profile::read(&whole(data.path(), "cut")).expect("whole").summary;
    assert!(summary.node.as_ref().is_some_and(|node| node.is_interrupted));
    let accesses = summary.totals().total().reuse.accesses;
    assert!((400..1200).contains(&accesses), "what was saved: {accesses}");
    assert_eq!(summary.stream_entries, accesses, "the stream ends where the counts do");
}

#[test]
fn a_recording_that_cannot_be_written_ends_and_says_why_and_the_store_goes_on() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let tree = filled(&store, 3000);
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    start(&profiling, StartRecording { name: Some("run".into()), ..short_of(3600) });
    read(&store, tree, 3000, 100);
    // As with a full disk, nothing can be made in the folder any more.
    std::fs::rename(data.path().join("profiles"), data.path().join("elsewhere")).expect("it is there");
    let status = stopped(&profiling);
    assert_eq!(status.state, RecordingState::Failed, "{status:?}");
    assert!(!status.why.is_empty() && !store.access_tap().is_on());
    read(&store, tree, 3000, 100);
    start(&profiling, StartRecording { name: Some("again".into()), ..short_of(3600) });
    assert_eq!(stopped(&profiling).state, RecordingState::Complete);
}

#[test]
fn a_piece_is_read_only_in_a_fetch_that_began_with_the_first_byte() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store());
    let profiling = Profiling::start(data.path(), &store, Clock::fixed(0));
    for name in ["a", "b"] {
        start(&profiling, StartRecording { name: Some(name.into()), ..short_of(60) });
        assert_eq!(stopped(&profiling).state, RecordingState::Complete);
    }
    let read = |name: &str, offset, fetch| {
        profiling.handle(ProfileRequest::Read { name: name.into(), offset, fetch }).map(|answer| match answer {
            ProfileAnswer::Piece(piece) => piece,
            ProfileAnswer::Report(_) => panic!("another answer"),
        })
    };
    for fetch in [None, Some(0), Some(7)] {
        assert!(read("a", 1, fetch).is_err_and(|error| error.to_string().contains("first byte")));
    }
    let first = read("a", 0, None).expect("it is there");
    assert_eq!(read("a", 1, Some(first.fetch)).expect("it has begun").bytes, first.bytes);
    assert!(read("b", 1, Some(first.fetch)).is_err(), "it is of another profile");
    for _ in 0..FETCHES_MAX {
        read("b", 0, None).expect("it is there");
    }
    assert!(read("a", 1, Some(first.fetch)).is_err(), "others have begun since");
}
