//! The generator keeps its promises: determinism, sizes, charsets, control ids.

use super::*;

const SEED: u64 = 20_261_121;

fn set(seed: u64, count: usize) -> Vec<Sample> {
    let mut generator = Generator::new(seed);
    (0..count).map(|_| generator.sample()).collect()
}

#[test]
fn the_same_seed_gives_the_same_messages_and_another_seed_others() {
    assert_eq!(set(SEED, 200), set(SEED, 200));
    assert_ne!(set(SEED, 200), set(SEED + 1, 200));
}

#[test]
fn sizes_follow_the_corpus() {
    for seed in [SEED, 1, 2, 3] {
        let mut sizes: Vec<usize> = set(seed, 4000).iter().map(|sample| sample.bytes.len()).collect();
        sizes.sort_unstable();
        let (median, p95, largest) = (sizes[2000], sizes[3800], sizes[3999]);
        println!("seed {seed}: median {median}, p95 {p95}, max {largest}, mean {}", sizes.iter().sum::<usize>() / 4000);
        assert!((1_300..=1_800).contains(&median), "seed {seed}: median {median}");
        assert!((6_000..=10_000).contains(&p95), "seed {seed}: p95 {p95}");
        assert!(largest < 111_737, "seed {seed}: largest {largest}");
    }
}

#[test]
fn every_message_has_the_segments_the_workload_changes() {
    for sample in set(SEED, 1000) {
        let names: Vec<&[u8]> =
            sample.bytes.split(|byte| *byte == b'\r').map(|line| &line[..line.len().min(3)]).collect();
        for needed in [b"MSH", b"PID", b"PV1"] {
            assert_eq!(names.iter().filter(|name| **name == needed).count(), 1, "{:?}", sample.kind);
        }
        assert!(sample.bytes.ends_with(b"\r"));
    }
}

#[test]
fn the_control_id_is_where_the_sample_says() {
    for mut sample in set(SEED, 100) {
        control_id::write(&mut sample.bytes[sample.control_id.clone()], 127, 4_799);
        let header = sample.bytes.split(|byte| *byte == b'\r').next().expect("split yields one piece");
        let field = header.split(|byte| *byte == b'|').nth(9).expect("the header has ten fields");
        assert_eq!(control_id::read(field), Some((127, 4_799)));
    }
}

#[test]
fn only_our_control_ids_are_read() {
    for other in ["", "T4-000-000000", "T4-000-00000000", "X4-000-0000000", "T4-0a0-0000000", "T4-000-000000x"] {
        assert_eq!(control_id::read(other.as_bytes()), None, "{other:?}");
    }
}

#[test]
fn the_set_holds_every_kind_and_charset_with_escapes_nulls_and_local_segments() {
    let samples = set(SEED, 1000);
    for kind in Kind::ALL {
        assert!(samples.iter().any(|sample| sample.kind == kind), "{kind:?}");
    }
    for charset in [Charset::Ascii, Charset::Latin1, Charset::Utf8] {
        assert!(samples.iter().any(|sample| sample.charset == charset), "{charset:?}");
    }
    for needle in ["\\T\\", "\\F\\", "\\S\\", "\\X0D\\", "\\.br\\", "|\"\"|", "\rZPI|", "~"] {
        let holds = |sample: &&Sample| memchr::memmem::find(&sample.bytes, needle.as_bytes()).is_some();
        assert!(samples.iter().filter(holds).count() > 10, "{needle:?}");
    }
}

#[test]
fn bytes_outside_ascii_appear_only_as_the_header_declares() {
    let mut accented = [0, 0];
    for sample in set(SEED, 1000) {
        match sample.charset {
            Charset::Ascii => assert!(sample.bytes.is_ascii()),
            Charset::Utf8 => {
                assert!(std::str::from_utf8(&sample.bytes).is_ok());
                accented[0] += usize::from(!sample.bytes.is_ascii());
            }
            Charset::Latin1 => accented[1] += usize::from(std::str::from_utf8(&sample.bytes).is_err()),
        }
    }
    assert!(accented[0] > 50 && accented[1] > 50, "{accented:?}");
}

#[test]
fn control_ids_survive_writing_and_reading() {
    let mut id = [0; control_id::BYTES];
    for (service, sequence) in [(0, 0), (7, 4_799), (999, 9_999_999)] {
        control_id::write(&mut id, service, sequence);
        assert_eq!(control_id::read(&id), Some((service, sequence)));
    }
    control_id::write(&mut id, 0, 0);
    assert_eq!(id, control_id::BLANK.as_bytes());
}
