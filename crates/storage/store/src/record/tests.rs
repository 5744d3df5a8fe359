//! The format, fixed byte for byte, and its decoder with arbitrary bytes.

use super::*;

fn changes() -> Vec<Change> {
    vec![
        Change { tree: TreeId(1000), key: Bytes::from_static(b"alpha"), op: Op::Put(Bytes::from_static(b"one")) },
        Change { tree: TreeId(1000), key: Bytes::from_static(b"beta"), op: Op::Delete },
        Change { tree: TreeId(7), key: Bytes::new(), op: Op::DropTree },
        Change { tree: TreeId(7), key: Bytes::from_static(b"k"), op: Op::Put(Bytes::new()) },
    ]
}

fn encoded(changes: &[Change]) -> Vec<u8> {
    let mut writer = RecordWriter::new(1_700_000_000_000_001, 0);
    changes.iter().for_each(|change| writer.push(change.tree, &change.key, &change.op));
    writer.finish()
}

#[test]
fn a_record_is_these_bytes() {
    let hex: String = encoded(&changes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let header = "01000000 04000000 01401e18 240a0600";
    let first = "e8030000 0500 0000 03000000 616c706861 6f6e65";
    let second = "e8030000 0400 0100 00000000 62657461";
    let third = "07000000 0000 0200 00000000";
    let fourth = "07000000 0100 0000 00000000 6b";
    assert_eq!(hex, format!("{header}{first}{second}{third}{fourth}").replace(' ', ""));
    let runs = [vec![Lsn(4096), Lsn(8192)], vec![]];
    let hex: String = encode_spilled_commit(&runs, 2).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = "0100000002000000 0200000000000000 02000000 0010000000000000 0020000000000000 00000000";
    assert_eq!(hex, expected.replace(' ', ""));
}

#[test]
fn what_was_written_is_read() {
    assert_eq!(decode(encoded(&changes()).into()), Ok(changes()));
    assert_eq!(time_us(&encoded(&[])), Ok(1_700_000_000_000_001));
    let runs = vec![vec![Lsn(1), Lsn(2)], vec![Lsn(3)]];
    assert_eq!(decode_spilled_commit(encode_spilled_commit(&runs, 5).into()), Ok(runs));
}

#[test]
fn every_cut_and_every_tail_is_damage() {
    let whole = encoded(&changes());
    for end in 0..whole.len() {
        assert!(matches!(decode(Bytes::copy_from_slice(&whole[..end])), Err(RecordDamage::Short(_))), "cut at {end}");
    }
    let mut longer = whole;
    longer.push(0);
    assert_eq!(decode(longer.into()), Err(RecordDamage::Long(1)));
    let runs = encode_spilled_commit(&[vec![Lsn(1)]], 0);
    for end in 0..runs.len() {
        assert!(decode_spilled_commit(Bytes::copy_from_slice(&runs[..end])).is_err(), "cut at {end}");
    }
}

#[test]
fn any_bytes_are_read_without_a_panic_or_a_large_allocation() {
    let seed = 0x7265_636f;
    let mut random = fastrand::Rng::with_seed(seed);
    let good = encoded(&changes());
    for round in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let bytes = Bytes::from(bytes);
        let read = || (decode(bytes.clone()).is_ok(), decode_spilled_commit(bytes.clone()).is_ok());
        assert!(std::panic::catch_unwind(read).is_ok(), "seed {seed} round {round}");
    }
}
