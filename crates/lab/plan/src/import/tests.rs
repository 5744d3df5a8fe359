//! Each format by a trace of a few lines: what it becomes, what it lacks, and which lines are bad.

use super::*;
use crate::PlanError;
use crate::hash::Salt;
use crate::profile::{Lack, ProfileReader, RecorderOptions, StreamEntry};

fn options(format: TraceFormat) -> ImportOptions {
    ImportOptions { format, objects: false, same_size: false, bad_lines_max: 0, exact: true }
}

fn imported(trace: &[u8], options: &ImportOptions) -> Result<(Imported, Vec<StreamEntry>), PlanError> {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = RecorderOptions::new(Salt::of_seed(1), &["block"], 4096, folder.path());
    let mut out = Vec::new();
    let imported = import(&mut { trace }, options, recorder, &mut out)?;
    let mut reader = ProfileReader::new(out.as_slice())?;
    let mut entries = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        entries.extend(chunk);
    }
    Ok((imported, entries))
}

/// Times (us), bytes, and whether it writes.
fn rows(entries: &[StreamEntry]) -> Vec<(u64, u32, bool)> {
    entries.iter().map(|entry| (entry.time_us, entry.bytes, entry.is_write)).collect()
}

/// How many different keys.
fn keys(entries: &[StreamEntry]) -> usize {
    entries.iter().map(|entry| entry.hash).collect::<std::collections::HashSet<u64>>().len()
}

const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  Q   W 223488 + 8 [kjournald]\n\
  8,0    3        2     0.000001829   697  G   W 223488 + 8 [kjournald]\n\
  8,0    1        3     0.000500000  1234  Q  RA 223480 + 24 [cat]\n\
  8,0    1        4     0.000600000  1234  Q FWFS 0 + 8 [x]\n\
  8,0    1        5     0.000700000  1234  Q  FN [x]\n\
  8,0    1        6     0.000800000  1234  Q  DS 4096 + 8 [fstrim]\n\
  8,16   1        7     1.000000000  1234  Q   R 223488 + 8 [cat]\n\
CPU0 (8,0):\n Reads Queued:           2,       16KiB\nTotal (8,0):\nThroughput (R/W): 1KiB/s\n";

#[test]
fn blkparse_counts_what_is_queued_flushes_and_devices_and_ends_with_the_summary() {
    let (imported, entries) = imported(BLKPARSE.as_bytes(), &options(TraceFormat::Blkparse)).expect("imports");
    let page = 4096;
    assert_eq!(
        rows(&entries),
        [
            (0, page, true),
            (500, page, false),
            (500, page, false),
            (500, page, false),
            (600, page, true),
            (1_000_000, page, false)
        ],
        "24 sectors are three pages"
    );
    assert_eq!(keys(&entries), 5, "the second access is to the page of the first, the last to another device");
    let origin = &imported.summary.origin;
    assert_eq!((imported.requests, origin.flushes, origin.other_requests), (4, Some(2), 1));
    assert!(
        !imported.summary.has(Lack::HitsAbove)
            && imported.summary.has(Lack::Flushes)
            && imported.summary.has(Lack::Times)
    );
}

#[test]
fn fio_has_names_with_blanks_waits_and_times_in_microseconds() {
    let second = "fio version 2 iolog\n/dev/my disk add\n/dev/my disk open\n/dev/my disk read 0 8192\n\
                  /dev/my disk wait 250 0\n/dev/my disk write 4096 4096\n/dev/my disk sync 0 0\n/dev/my disk datasync\n\
                  /dev/my disk trim 0 4096\n/dev/my disk close\n";
    let (second, entries) = imported(second.as_bytes(), &options(TraceFormat::Fio)).expect("imports");
    assert_eq!(rows(&entries), [(0, 4096, false), (0, 4096, false), (250, 4096, true)]);
    assert_eq!((keys(&entries), second.summary.origin.flushes, second.summary.origin.other_requests), (2, Some(2), 1));
    let third = "fio version 3 iolog\n20 /tmp/f add\n121 /tmp/f open\n124 /tmp/f read 61440 4096\n385 /tmp/f write 774144 4096\n\
                 400 /tmp/f close\n";
    let (third, entries) = imported(third.as_bytes(), &options(TraceFormat::Fio)).expect("imports");
    assert_eq!(rows(&entries), [(0, 4096, false), (261, 4096, true)]);
    assert!(third.summary.has(Lack::Times));
}

#[test]
fn msr_has_host_and_disk_and_times_in_tenths_of_microseconds() {
    let trace = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,7014609920,4096,3\n\
                 128166372016382155,USR,0,write,7014609920,4096,3\n";
    let (imported, entries) = imported(trace.as_bytes(), &options(TraceFormat::Msr)).expect("imports");
    assert_eq!(entries.len(), 7 + 2 + 2, "each begins 1 KiB behind the begin of a page");
    assert_eq!((entries[7].time_us, keys(&entries)), (1_332_053, 11), "another disk, and another host");
    assert!(!imported.summary.has(Lack::Flushes));
}

#[test]
fn cloudphysics_is_the_same_as_csv_and_binary_in_both_versions() {
    let csv =
        "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,8192,40409911\n1,5633899,28,8192,40409911\n";
    let records = [
        (0x2au16, 512u32, 42_932_745u64, 5_633_898u64),
        (0x28, 8192, 40_409_911, 5_633_899),
        (0x28, 8192, 40_409_911, 5_633_899),
    ];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (number, (command, bytes, block, seconds)) in records.into_iter().enumerate() {
        let us = seconds * 1_000_000;
        first.extend((number as u32).to_le_bytes());
        first.extend(bytes.to_le_bytes());
        first.extend(1u32.to_le_bytes());
        first.extend(command.to_le_bytes());
        first.extend(0x100u16.to_le_bytes());
        first.extend(block.to_le_bytes());
        first.extend(us.to_le_bytes());
        second.extend(command.to_le_bytes());
        second.extend(0x200u16.to_le_bytes());
        second.extend((number as u32).to_le_bytes());
        second.extend(bytes.to_le_bytes());
        second.extend(1u32.to_le_bytes());
        second.extend(block.to_le_bytes());
        second.extend(us.to_le_bytes());
        second.extend(77u64.to_le_bytes());
    }
    let (_, wanted) = imported(csv.as_bytes(), &options(TraceFormat::Cloudphysics)).expect("imports");
    assert_eq!(rows(&wanted)[0], (0, 4096, true));
    assert_eq!(rows(&wanted)[1..], [(1_000_000, 4096, false); 6], "8192 bytes that begin within a page touch three");
    for binary in [first, second] {
        let (_, entries) = imported(&binary, &options(TraceFormat::Vscsi)).expect("imports");
        assert_eq!(entries, wanted);
        assert!(
            imported(&binary[..binary.len() - 1], &options(TraceFormat::Vscsi)).is_err(),
            "it ends within a record"
        );
    }
    let objects = ImportOptions { objects: true, ..options(TraceFormat::Cloudphysics) };
    let (imported, entries) = imported(csv.as_bytes(), &objects).expect("imports");
    assert_eq!(rows(&entries), [(0, 512, true), (1_000_000, 8192, false), (1_000_000, 8192, false)]);
    assert_eq!(
        imported.exact.expect("wanted"),
        imported.summary.totals().total().reuse,
        "so few keys are all in the sample"
    );
}

#[test]
fn caches_of_twitter_and_meta_and_any_csv_are_objects_with_their_sizes() {
    let twitter = "0,nz:u:a,b,8,100,3,get,0\n2,nz:u:a,b,8,100,3,set,60\n3,k,1,5,3,delete,0\n3,k,1,0,3,gets,0\n";
    let (imports, entries) = imported(twitter.as_bytes(), &options(TraceFormat::Twitter)).expect("imports");
    assert_eq!(rows(&entries), [(0, 108, false), (2_000_000, 108, true), (3_000_000, 1, false)]);
    assert_eq!((keys(&entries), imports.summary.origin.other_requests), (2, 1));
    let meta = "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n10,7,4,GET,2,50,1,0\n11,7,4,GET_LEASE,1,50,1,0\n12,20,4,SET,1,35,0,0\n\
                13,20,4,DELETE,1,35,0,0\n";
    let (_, entries) = imported(meta.as_bytes(), &options(TraceFormat::MetaKv)).expect("imports");
    assert_eq!(rows(&entries), [(0, 54, false), (0, 54, false), (1_000_000, 54, false), (2_000_000, 39, true)]);
    let csv = "# time, object, size, next_access_vtime\n0, 13053225291711363978, 737, 13\n1.5, 5, 248, 6570713\n";
    let (imports, entries) = imported(csv.as_bytes(), &options(TraceFormat::Csv)).expect("imports");
    assert_eq!(rows(&entries), [(0, 737, false), (1_500_000, 248, false)]);
    assert!(!imports.summary.has(Lack::Writes) && imports.summary.has(Lack::Sizes));
    let same = ImportOptions { same_size: true, ..options(TraceFormat::Csv) };
    let (imports, entries) = imported(csv.as_bytes(), &same).expect("imports");
    assert_eq!(entries[0].bytes, 4096);
    assert!(!imports.summary.has(Lack::Sizes));
}

#[test]
fn oracle_general_is_records_of_24_bytes() {
    let mut trace = Vec::new();
    for (time, object, bytes) in [(100u32, 5u64, 700u32), (101, 6, 800), (101, 5, 700)] {
        trace.extend(time.to_le_bytes());
        trace.extend(object.to_le_bytes());
        trace.extend(bytes.to_le_bytes());
        trace.extend((-1i64).to_le_bytes());
    }
    let (imports, entries) = imported(&trace, &options(TraceFormat::OracleGeneral)).expect("imports");
    assert_eq!(rows(&entries), [(0, 700, false), (1_000_000, 800, false), (1_000_000, 700, false)]);
    assert_eq!(entries[0].hash, entries[2].hash);
    assert!(!imports.summary.has(Lack::Writes) && !imports.summary.has(Lack::Flushes));
}

#[test]
fn a_bad_line_is_refused_with_its_number_or_left_out_and_reported() {
    let long = format!("0,{},8,100,3,get,0\n", "x".repeat(70_000));
    let cases: [(TraceFormat, &str, &str, &str); 14] = [
        (TraceFormat::Blkparse, "  8,0 3 1 0.0 697 Q W 8 + 8 [x]\n", "hello\n", "line 2: it has less than six fields"),
        (TraceFormat::Blkparse, "8,0 3 1 0.0 6 Q W 8 + 8 [x]\n", "8,0 3 1 0.0 6 Q W 8\n", "no sector and length"),
        (TraceFormat::Fio, "fio version 2 iolog\n/f read 0 1\n", "/f jump 0 1\n", "line 3: its action is none"),
        (TraceFormat::Fio, "fio version 2 iolog\n/f read 0 1\n", "/f read 0 99999999999\n", "its length is above"),
        (TraceFormat::Fio, "fio version 2 iolog\n/f read 0 1\n", "/f read 0 0\n", "its length is 0"),
        (TraceFormat::Msr, "1,h,0,Read,0,1,1\n", "1,h,0,Read,0,1\n", "line 2: it has not seven fields"),
        (TraceFormat::Msr, "1,h,0,Read,0,1,1\n", "1,h,0,Jump,0,1,1\n", "neither Read nor Write"),
        (TraceFormat::Msr, "1,h,0,Read,0,1,1\n", "1,h,0,Read,18446744073709551615,4096,1\n", "beyond any device"),
        (TraceFormat::Cloudphysics, "1,5,2a,512,1\n", "1,5,zz,512,1\n", "no SCSI read or write"),
        (TraceFormat::Cloudphysics, "1,5,2a,512,1\n", "1,5,2a,512,99999999999999999999\n", "no whole number"),
        (TraceFormat::Twitter, "0,k,1,5,3,get,0\n", &long, "line 2: it has more than 65536 bytes"),
        (TraceFormat::Twitter, "0,k,1,5,3,get,0\n", "0,k,1,5,3,look,0\n", "none of memcached's"),
        (
            TraceFormat::MetaKv,
            "key,op,size,op_count\n1,GET,5,1\n",
            "1,GET,5,99999999999\n",
            "op_count is not 1 to 100000",
        ),
        (TraceFormat::Csv, "time,object,size\n0,1,5\n", "0,1,99999999999\n", "its size is above 4 GiB"),
    ];
    for (format, good, bad, text) in cases {
        let trace = format!("{good}{bad}{}", good.lines().last().expect("a line"));
        let error = imported(trace.as_bytes(), &options(format)).expect_err(text);
        assert!(matches!(error, PlanError::BadLine { .. }) && error.to_string().contains(text), "{format:?}: {error}");
        let left_out = ImportOptions { bad_lines_max: 1, ..options(format) };
        let (imports, _) = imported(trace.as_bytes(), &left_out).expect("one may be bad");
        assert_eq!(
            (imports.summary.origin.bad_lines, imports.bad_lines.len(), imports.requests),
            (1, 1, 2),
            "{format:?}"
        );
        assert!(imports.bad_lines[0].contains(text.split(": ").last().expect("text")), "{:?}", imports.bad_lines);
    }
}

#[test]
fn a_trace_without_a_request_and_one_of_another_format_make_no_profile() {
    for (format, trace) in [
        (TraceFormat::Blkparse, ""),
        (TraceFormat::Fio, "fio version 2 iolog\n/f add\n"),
        (TraceFormat::Fio, "fio version 1 iolog\n"),
        (
            TraceFormat::Vscsi,
            "this is no binary trace, whatever else it may be: it is text of some length, 80 and more",
        ),
        (TraceFormat::OracleGeneral, "short"),
        (TraceFormat::MetaKv, "op,size\n"),
        (TraceFormat::Csv, "a,b\n"),
    ] {
        assert!(imported(trace.as_bytes(), &options(format)).is_err(), "{format:?} {trace:?}");
    }
}
