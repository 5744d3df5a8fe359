//! What is recorded comes back; damage is found; the file stays within its bounds; its bytes are those of the golden dump.

use std::path::Path;

use crate::*;

use crate::generate::{Shape, generate};
use crate::hash::Salt;
use crate::reuse::MissRatioCurve;

fn origin() -> Origin {
    Origin {
        kind: "test".into(),
        made_by: "a test".into(),
        keys: "page".into(),
        bad_lines: 0,
        other_requests: 2,
        flushes: Some(3),
        times_back: 0,
    }
}

fn options(folder: &Path) -> RecorderOptions {
    RecorderOptions::new(Salt::of_seed(3), &["leaf", "extent"], 8192, folder)
}

/// A profile of a stream of two structures, an access each so many microseconds.
fn recorded(options: RecorderOptions, keys: u32, accesses: u64, us: u64) -> (Vec<u8>, Summary) {
    let mut recorder = Recorder::new(options).expect("good options");
    for (number, key) in generate(Shape::Zipf { skew: 0.8 }, keys, accesses, 5).enumerate() {
        let access = Access {
            time_us: number as u64 * us,
            key,
            bytes: if key % 4 == 0 { 65536 } else { 8192 },
            structure: u8::from(key % 4 == 0),
            is_write: number % 5 == 0,
        };
        recorder.record(access).expect("writes");
    }
    let mut out = Vec::new();
    let summary = recorder.finish(origin(), &[Lack::Cpu, Lack::Flushes, Lack::Cpu], &mut out).expect("writes");
    (out, summary)
}

fn entries(bytes: &[u8]) -> Result<Vec<StreamEntry>, ProfileError> {
    let mut reader = ProfileReader::new(bytes)?;
    let mut entries = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        entries.extend(chunk);
    }
    Ok(entries)
}

#[test]
fn a_profile_is_read_as_it_was_recorded_with_counts_curves_and_the_whole_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, summary) = recorded(options(folder.path()), 2000, 150_000, 100_000);
    let reader = ProfileReader::new(bytes.as_slice()).expect("a profile");
    assert_eq!(reader.summary(), &summary);
    assert_eq!(summary.lacks, [Lack::Flushes, Lack::Cpu], "once each, in order");
    assert_eq!((summary.seconds, summary.intervals.len(), summary.interval_s), (15_000, 5, 3600));
    let totals = summary.totals();
    assert_eq!(totals.total().reuse.accesses, 150_000);
    assert_eq!(totals.total().writes, 30_000);
    assert_eq!(totals.structures[1].read_bytes % 65536, 0);
    assert_eq!((summary.stream_rate, summary.stream_entries), (1.0, 150_000), "a small one has every access");
    let stream = entries(&bytes).expect("reads");
    assert_eq!(stream.len(), 150_000);
    for (number, (entry, key)) in stream.iter().zip(generate(Shape::Zipf { skew: 0.8 }, 2000, 150_000, 5)).enumerate() {
        assert_eq!((entry.hash, entry.time_us), (Salt::of_seed(3).hash(key), number as u64 * 100_000));
        assert_eq!((entry.bytes == 65536, entry.structure == 1), (key % 4 == 0, key % 4 == 0));
        assert_eq!(entry.is_write, number % 5 == 0);
    }
}

#[test]
fn every_changed_byte_and_every_cut_is_found_and_the_place_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, _) = recorded(options(folder.path()), 50, 300, 1000);
    let whole = entries(&bytes).expect("reads").len();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match entries(&damaged).expect_err("one bit was changed") {
            ProfileError::Damaged { at: section, .. } => {
                assert!(section <= at as u64, "byte {at}, section at {section}")
            }
            ProfileError::NotAProfile(_) => assert!(at < 8, "byte {at}"),
            error => panic!("byte {at}: {error}"),
        }
        assert!(entries(&bytes[..at]).is_err(), "cut at {at}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(entries(&longer).is_err(), "something follows");
    assert_eq!(whole, 300);
}

#[test]
fn a_file_of_another_version_and_no_profile_at_all_are_told_from_damage() {
    let mut header = *b"TERRPROF\x04\0\0\0\0\0\0\0";
    let sum = crate::format::checksum(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    for (bytes, text) in
        [(&header[..], "its version is 4"), (b"PAR1PAR1PAR1PAR1PAR1", "its first bytes"), (b"", "too short")]
    {
        let error = ProfileReader::new(bytes).expect_err(text);
        assert!(matches!(error, ProfileError::NotAProfile(_)) && error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_long_stream_keeps_so_many_keys_and_the_file_its_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let by_keys = RecorderOptions { stream_keys: 1000, ..options(folder.path()) };
    let (bytes, summary) = recorded(by_keys, 50_000, 300_000, 1);
    let stream = entries(&bytes).expect("reads");
    let keys: std::collections::HashSet<u64> = stream.iter().map(|entry| entry.hash).collect();
    assert!((500..=1000).contains(&keys.len()), "{} keys", keys.len());
    assert_eq!(stream.len() as u64, summary.stream_entries);
    assert!(stream.iter().all(|entry| summary.stream_threshold.is_some_and(|threshold| entry.hash < threshold)));
    // All accesses to a sampled key are there.
    let salt = Salt::of_seed(3);
    let threshold = summary.stream_threshold.expect("a sample");
    let all = generate(Shape::Zipf { skew: 0.8 }, 50_000, 300_000, 5).filter(|key| salt.hash(*key) < threshold).count();
    assert_eq!(all, stream.len());

    let by_bytes = RecorderOptions { file_bytes: 2 << 20, ..options(folder.path()) };
    let (bytes, summary) = recorded(by_bytes, 50_000, 600_000, 1);
    assert!(bytes.len() <= 2 << 20, "{} bytes", bytes.len());
    assert!(summary.stream_rate < 1.0 && summary.stream_rate > 0.05, "{}", summary.stream_rate);
    assert_eq!(summary.totals().total().reuse.accesses, 600_000, "counts are of everything");
}

#[test]
fn years_become_longer_intervals_and_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let hour_us = 3_600_000_000;
    let (_, summary) = recorded(options(folder.path()), 100, 5000, hour_us);
    assert!(summary.intervals.len() <= 768 && summary.intervals.len() > 300, "{}", summary.intervals.len());
    assert_eq!(summary.interval_s, 3600 * 8);
    assert_eq!(summary.totals().total().reuse.accesses, 5000);
    assert!(summary.intervals.iter().all(|interval| interval.begin_s % summary.interval_s == 0));
}

#[test]
fn curves_of_structures_add_up_to_that_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, summary) = recorded(options(folder.path()), 3000, 100_000, 1);
    let totals = summary.totals();
    let all = totals.total().reuse;
    let curves: Vec<MissRatioCurve> = totals.structures.iter().map(|used| used.reuse.curve()).collect();
    for bytes in [1 << 20, 10 << 20, 50 << 20] {
        let weighted: f64 = totals
            .structures
            .iter()
            .zip(&curves)
            .map(|(used, curve)| curve.miss_ratio(bytes) * used.reuse.accesses as f64)
            .sum();
        assert!((weighted / all.accesses as f64 - all.curve().miss_ratio(bytes)).abs() < 1e-9);
    }
}

/// A scan of volumes would push every page out of a cache that they shared.
#[test]
fn what_is_beside_the_page_cache_changes_no_distance_in_it_and_has_its_own_curve() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = || generate(Shape::Zipf { skew: 0.8 }, 2000, 50_000, 5);
    let record = |scan: bool| {
        let options = RecorderOptions { beside: vec![1], keys: 256, stream_keys: 512, ..options(folder.path()) };
        let mut recorder = Recorder::new(options).expect("good options");
        for (number, key) in keys().enumerate() {
            let time_us = number as u64;
            recorder.record(Access { time_us, key, bytes: 8192, structure: 0, is_write: false }).expect("writes");
            if scan {
                let key = 1 << 40 | (number as u64 % 4000);
                recorder.record(Access { time_us, key, bytes: 4096, structure: 1, is_write: true }).expect("writes");
            }
        }
        recorder.finish(origin(), &[], &mut Vec::new()).expect("writes")
    };
    let (alone, both) = (record(false), record(true));
    assert!(both.is_beside(1) && !both.is_beside(0));
    for bytes in [256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let ratio = |summary: &Summary| summary.cached().reuse.curve().miss_ratio(bytes);
        assert_eq!(ratio(&alone), ratio(&both), "at {bytes}");
    }
    assert_eq!((both.cached().writes, both.touched_bytes), (0, alone.touched_bytes));
    let (beside, curve) = (&both.beside[0], both.totals().structures[1].reuse.curve());
    let scanned = 4000.0 * 4096.0;
    assert!((beside.touched_bytes as f64 / scanned - 1.0).abs() < 0.25, "{beside:?}");
    assert!(curve.miss_ratio((scanned * 0.6) as u64) > 0.8 && curve.miss_ratio((scanned * 1.5) as u64) < 0.2);
}

#[test]
fn a_summary_that_contradicts_itself_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, good) = recorded(options(folder.path()), 10, 100, 1);
    assert_eq!(good.contradiction(), None);
    let cases = [
        Summary { structures: vec![], ..good.clone() },
        Summary { page_bytes: 0, ..good.clone() },
        Summary { page_bytes: u64::MAX, ..good.clone() },
        Summary { interval_s: 0, ..good.clone() },
        Summary { stream_rate: f64::NAN, ..good.clone() },
        Summary { stream_rate: 1.5, ..good.clone() },
        Summary { structures: vec!["one".into()], ..good.clone() },
        Summary { structures: vec!["leaf".into(), "\u{1b}[2J".into()], ..good.clone() },
        Summary { beside: vec![BesideUse { structure: 2, ..BesideUse::default() }], ..good.clone() },
        Summary { beside: vec![BesideUse::default(); 2], ..good.clone() },
        Summary {
            beside: vec![BesideUse::default(), BesideUse { structure: 1, ..BesideUse::default() }],
            ..good.clone()
        },
    ];
    for case in cases {
        assert!(case.contradiction().is_some(), "{case:?}");
    }
}

#[test]
fn few_bytes_that_stand_for_more_buckets_than_a_profile_may_have_are_refused() {
    use super::format::{REUSE_BUCKETS_MAX, decode_reuse};
    use crate::reuse::BUCKETS;
    let summary = |histograms: usize| {
        let interval = |_| Interval { begin_s: 0, structures: vec![StructureUse::default()] };
        let intervals = (0..histograms).map(interval).collect();
        Summary { intervals, ..recorded(options(&std::env::temp_dir()), 10, 10, 1).1 }
    };
    let largest_only = |histograms: usize| {
        let mut bytes = Vec::new();
        for _ in 0..histograms {
            bytes.extend([0; 16]);
            bytes.extend(1u32.to_le_bytes());
            bytes.extend((BUCKETS as u16 - 1).to_le_bytes());
            bytes.extend(1f64.to_bits().to_le_bytes());
        }
        bytes
    };
    let most = REUSE_BUCKETS_MAX / BUCKETS;
    assert_eq!(decode_reuse(&largest_only(most), &mut summary(most)), Some(()));
    assert_eq!(decode_reuse(&largest_only(most + 1), &mut summary(most + 1)), None);
}

/// The bytes of a small profile, as hexadecimal, sections unpacked: changes of the format show here, and need another version.
#[test]
fn the_format_is_that_of_the_golden_dump() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RecorderOptions { beside: vec![1], ..options(folder.path()) };
    let mut recorder = Recorder::new(options).expect("good options");
    for (number, key) in [1, 2, 1, 3].into_iter().enumerate() {
        let (structure, is_write) = (u8::from(key == 3), number == 1);
        recorder
            .record(Access { time_us: 300 * number as u64, key, bytes: 8192, structure, is_write })
            .expect("writes");
    }
    recorder.device_reads(1, (2, 8192));
    let mut bytes = Vec::new();
    recorder.finish(origin(), &[Lack::Cpu], &mut bytes).expect("writes");
    let mut dump = format!("file {}\n", hex(&bytes[..16]));
    let mut rest = &bytes[16..];
    while let Some((header, behind)) = rest.split_first_chunk::<32>() {
        let header = crate::format::SectionHeader::decode(header).expect("a header");
        let (packed, behind) = behind.split_at(header.packed as usize);
        let content = crate::format::unpack(packed, header.unpacked).expect("unpacks");
        dump += &format!("{:?} {} {}\n", header.kind, header.number, header.unpacked);
        match std::str::from_utf8(&content) {
            Ok(text) if text.starts_with('{') => dump += &format!("{text}\n"),
            _ => content.chunks(32).for_each(|line| dump += &format!("{}\n", hex(line))),
        }
        rest = behind;
    }
    let golden = include_str!("golden.txt");
    assert_eq!(dump, golden, "the format has changed: it needs another version\n{dump}");
}

/// The same profile, written by a script after the description of the format, packed otherwise.
#[test]
fn a_file_that_another_program_wrote_by_the_layout_is_read() {
    let bytes = include_bytes!("golden.tprof");
    let stream = entries(bytes).expect("a profile");
    let salt = Salt::of_seed(3);
    let wanted = [(1, 0, false), (2, 300, true), (1, 600, false), (3, 900, false)];
    for (entry, (key, time_us, is_write)) in stream.iter().zip(wanted) {
        assert_eq!((entry.hash, entry.time_us, entry.is_write, entry.bytes), (salt.hash(key), time_us, is_write, 8192));
    }
    assert_eq!(stream.len(), 4);
    let contents = include_bytes!("golden-content.bin");
    assert_eq!(entries(&crate::fuzz::file_of_contents(contents).expect("long enough")).expect("a profile"), stream);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A profile whose part has a name, recorded as a node does, with a state after each so many accesses.
fn recorded_as_node(folder: &Path, accesses: u64, saves_each: u64) -> Recorder {
    let part = Some(folder.join("node.part"));
    let mut recorder = Recorder::new(RecorderOptions { part, ..options(folder) }).expect("good options");
    for (number, key) in generate(Shape::Zipf { skew: 0.8 }, 500, accesses, 5).enumerate() {
        let number = number as u64;
        let access = SampledAccess {
            time_us: number,
            hash: Salt::of_seed(3).hash(key),
            bytes: 8192,
            structure: 0,
            is_write: false,
            is_new: number % 10 == 9,
        };
        recorder.sample(access).expect("writes");
        let made = u64::from(access.is_new);
        recorder.count(number, 0, AccessCounts { reads: 1 - made, made, ..AccessCounts::default() });
        if number % saves_each == saves_each - 1 {
            recorder.set_about(origin(), &[Lack::Cpu], NodeFigures::default());
            recorder.save().expect("writes");
        }
    }
    recorder
}

#[test]
fn a_part_that_was_cut_anywhere_becomes_a_profile_up_to_its_last_state() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(recorded_as_node(folder.path(), 1000, 250));
    let part = folder.path().join("node.part");
    let bytes = std::fs::read(&part).expect("a part");
    assert!(ProfileReader::new(bytes.as_slice()).is_err_and(|error| error.to_string().contains("recover")));
    let cut = folder.path().join("cut.part");
    let mut lengths = std::collections::BTreeSet::new();
    for at in (0..=bytes.len()).rev().step_by(97) {
        std::fs::write(&cut, &bytes[..at]).expect("writes");
        let mut out = Vec::new();
        let Ok(summary) = recover(&cut, &mut out, &WriteGuard::default()) else {
            lengths.insert(0);
            continue;
        };
        let stream = entries(&out).expect("whole");
        let accesses = summary.totals().total().reuse.accesses;
        assert!(
            accesses.is_multiple_of(225) && accesses > 0,
            "{accesses}: a state after each 250, a tenth of them made"
        );
        assert_eq!(stream.len() as u64, accesses / 9 * 10, "the stream ends with the state");
        assert_eq!(stream.iter().filter(|entry| entry.is_new).count() as u64, accesses / 9);
        assert!(summary.node.is_some_and(|node| node.is_interrupted));
        lengths.insert(accesses);
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 225, 450, 675, 900]);
}

#[test]
fn a_recording_with_a_part_is_the_profile_that_one_without_would_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = recorded_as_node(folder.path(), 5000, 1000);
    let whole = folder.path().join("node.tprof");
    let summary = recorder.finish_as(&whole).expect("writes");
    assert!(!folder.path().join("node.part").exists(), "the part is gone");
    let bytes = std::fs::read(&whole).expect("it is there");
    assert_eq!(ProfileReader::new(bytes.as_slice()).expect("a profile").summary(), &summary);
    let total = summary.totals().total();
    assert_eq!((total.reads, total.made, summary.stream_entries), (4500, 500, 5000));
    assert_eq!(entries(&bytes).expect("whole").len(), 5000);
    // A page that is made is neither a first use nor a hit.
    let counted = total.reuse.first + total.reuse.distances.sum();
    assert!((counted - 4500.0).abs() < 1e-6, "{counted}");
    assert!(recorded_as_node(folder.path(), 10, 10).finish_as(&whole).is_err(), "it is not replaced");
}

#[test]
fn a_lower_threshold_keeps_every_access_of_the_pages_below_it_and_memory_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder = Recorder::new(options(folder.path())).expect("good options");
    let salt = Salt::of_seed(3);
    let mut sampled = 0;
    for (number, key) in generate(Shape::Zipf { skew: 0.6 }, 100_000, 400_000, 7).enumerate() {
        if number == 200_000 {
            recorder.lower(u64::MAX / 4);
        }
        let hash = salt.hash(key);
        recorder.count(number as u64, 0, AccessCounts { reads: 1, ..AccessCounts::default() });
        if hash < recorder.threshold() {
            sampled += 1;
            let (time_us, bytes, structure, is_write, is_new) = (number as u64, 8192, 0, false, false);
            let access = SampledAccess { time_us, hash, bytes, structure, is_write, is_new };
            recorder.sample(access).expect("writes");
        }
    }
    assert!(sampled < 350_000 && recorder.threshold() <= u64::MAX / 4);
    assert!(recorder.memory_bytes() < 12 << 20, "{} bytes", recorder.memory_bytes());
    let reuse = recorder.reuse();
    assert_eq!(reuse.accesses, 400_000);
    let mut exact = crate::reuse::ReuseCounts::default();
    let mut distances = crate::reuse::StackDistances::default();
    for key in generate(Shape::Zipf { skew: 0.6 }, 100_000, 400_000, 7) {
        exact.count_exact(distances.access(key, 8192));
    }
    let error = crate::reuse::mean_absolute_error(&reuse.curve(), &exact.curve(), 100_000 * 8192, 100);
    assert!(error < 0.02, "{error}");
}

#[test]
fn accesses_keep_their_times_although_they_are_counted_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder = Recorder::new(options(folder.path())).expect("good options");
    for round in 0..3u64 {
        for (us, key) in [(10_000, 1), (20_000, 2)] {
            let time_us = round * 50_000 + us;
            let (hash, bytes, structure, is_write, is_new) = (Salt::of_seed(3).hash(key), 8192, 0, false, false);
            let access = SampledAccess { time_us, hash, bytes, structure, is_write, is_new };
            recorder.sample(access).expect("writes");
        }
        let counts = AccessCounts { reads: 2, ..AccessCounts::default() };
        recorder.count((round + 1) * 50_000 + 1000, 0, counts);
    }
    let mut out = Vec::new();
    let summary = recorder.finish(origin(), &[], &mut out).expect("writes");
    let times: Vec<u64> = entries(&out).expect("whole").iter().map(|entry| entry.time_us).collect();
    assert_eq!(times, [10_000, 20_000, 60_000, 70_000, 110_000, 120_000]);
    assert_eq!((summary.seconds, summary.totals().total().reuse.accesses), (1, 6));
}

#[test]
fn where_there_is_no_room_or_it_is_ended_the_part_stays_as_it_was_and_nothing_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorder = recorded_as_node(folder.path(), 1000, 250);
    recorder.lower(u64::MAX / 2);
    let part = folder.path().join("node.part");
    let files = || std::fs::read_dir(folder.path()).expect("a folder").flatten().count();
    // Ended: while it is thinned.
    let guard = WriteGuard { stop: std::sync::Arc::new(true.into()), ..WriteGuard::default() };
    let mut out = Vec::new();
    assert!(recover(&part, &mut out, &guard).is_err_and(|error| error.to_string().contains("ended")));
    drop(recorder);
    assert_eq!(files(), 1, "the part");
    // No room for what would be written.
    let guard = WriteGuard { spare_bytes: u64::MAX / 2, folder: folder.path().to_owned(), ..WriteGuard::default() };
    assert!(recover(&part, &mut out, &guard).is_err_and(|error| error.to_string().contains("no room")));
    std::fs::remove_file(&part).expect("it is there");
    let mut recorder = Recorder::new(RecorderOptions { part: Some(part.clone()), guard, ..options(folder.path()) })
        .expect("good options");
    let access = SampledAccess { time_us: 1, hash: 5, bytes: 8192, structure: 0, is_write: false, is_new: false };
    recorder.sample(access).expect("writes");
    recorder.set_about(origin(), &[], NodeFigures::default());
    recorder.save().expect("a state is small");
    let refused = recorder.finish_as(&folder.path().join("x.tprof"));
    assert!(refused.is_err_and(|error| error.to_string().contains("no room")));
    assert_eq!(files(), 1, "the part");
    recover(&part, &mut Vec::new(), &WriteGuard::default()).expect("it has what was saved");
}
