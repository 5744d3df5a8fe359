//! Trials of small productions: one service, one operation, one rule and one transform, changed in one point each. What a node and
//! the command line do with them is a system test of the program.

use std::fs;
use std::path::Path;

use super::*;

const MESSAGE: &[u8] = b"MSH|^~\\&|A|B|C|D|20260101||ADT^A01|R1|P|2.5\rPID|1||7||DOE^JOHN||19700101|F\r";

const SERVICE: &str = "kind = \"mllp\"\nlisten = \"127.0.0.1:2575\"\nrules = \"main\"\n";
const OPERATION: &str = "kind = \"mllp\"\naddress = \"127.0.0.1:2600\"\n";
const RULES: &str = "match first\nrule everything { send to lab using to-lab }\n";
const TRANSFORM: &str = "set MSH-10 = control_id()\nset MSH-7 = now('yyyyMMddHHmmss')\n";

/// A production with these rules and this transform.
fn production(folder: &Path, rules: &str, transform: &str) -> Production {
    for (name, text) in [
        ("services/in.toml", SERVICE),
        ("operations/lab.toml", OPERATION),
        ("rules/main.rules", rules),
        ("transforms/to-lab.hl7t", transform),
    ] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }
    Production::load(folder).unwrap_or_else(|error| panic!("{error}"))
}

fn trial(rules: &str, transform: &str, only: Option<&str>) -> Trial {
    let folder = tempfile::tempdir().expect("a folder");
    Trial::new(production(folder.path(), rules, transform), only, Clock::system()).expect("it can be tried")
}

/// As the engine stores the message with the production of today.
fn stored(raw: &[u8], transform: &str) -> Stored {
    let trial = trial(RULES, transform, None);
    let service = &trial.plan.production.services["in"];
    let raw = Bytes::copy_from_slice(raw);
    let (reading, unreadable) = intake::read(service, &raw);
    let inbound = Inbound::new(service, &raw, (&reading, unreadable), 1_700_000_000_000_000, "T18F3A");
    let allowance = Allowance::new(service.settings.intake().decision_time.0, thread_time);
    let work = intake::decide(&inbound, &trial.plan, Bodies::Delta, false, &Clock::system(), &allowance);
    record::decode_message(&work.record).expect("it is a record")
}

fn fields(tried: &TriedMessage) -> Vec<String> {
    let differences = tried.outputs.iter().flat_map(|output| &output.differences);
    let shown = |difference: &SegmentDifference| match difference {
        SegmentDifference::Removed { segment } => format!("- {segment}"),
        SegmentDifference::Added { segment } => format!("+ {segment}"),
        SegmentDifference::Field { path, before, now } => format!("{path} {before} > {now}"),
    };
    differences.map(shown).collect()
}

#[test]
fn the_production_of_then_decides_the_same_with_other_ids_and_at_another_time() {
    let then = stored(MESSAGE, TRANSFORM);
    let tried = trial(RULES, TRANSFORM, None).stored(&then).expect("it is tried");
    assert_eq!((tried.result, tried.before, tried.outputs.len()), (TrialResult::Same, None, 0));
}

#[test]
fn a_changed_transform_shows_the_fields_that_it_changes() {
    let then = stored(MESSAGE, TRANSFORM);
    let changed = format!("{TRANSFORM}set PID-8 = \"W\"\n");
    for only in [None, Some("to-lab")] {
        let tried = trial(RULES, &changed, only).stored(&then).expect("it is tried");
        assert_eq!(tried.result, TrialResult::Changed);
        assert_eq!(fields(&tried), ["PID-8 F > W"]);
        assert_eq!(tried.before, None, "the decision is the same");
    }
}

#[test]
fn changed_rules_show_the_decision_then_and_now_and_what_is_sent_no_more() {
    let then = stored(MESSAGE, TRANSFORM);
    let rules =
        "match first\nrule women when PID-8 = 'F' { drop 'not for us' }\nrule others { send to lab using to-lab }\n";
    let tried = trial(rules, TRANSFORM, None).stored(&then).expect("it is tried");
    assert_eq!((tried.result, tried.decision.0), (TrialResult::Changed, Status::Dropped));
    assert_eq!(tried.before.as_ref().map(|(status, _)| *status), Some(Status::Routed));
    assert_eq!(tried.outputs.iter().map(|output| (output.was, output.is)).collect::<Vec<_>>(), [(true, false)]);
}

#[test]
fn a_message_that_fails_is_reported_with_the_line_and_one_that_failed_and_passes_with_its_output() {
    let fails = "fail 'no account'\n";
    let then = stored(MESSAGE, TRANSFORM);
    let tried = trial(RULES, fails, Some("to-lab")).stored(&then).expect("it is tried");
    assert_eq!(tried.result, TrialResult::Errored);
    assert!(tried.decision.1.contains("to-lab.hl7t:1"), "{}", tried.decision.1);
    let then = stored(MESSAGE, fails);
    assert_eq!(then.status, Status::Errored);
    let tried = trial(RULES, "set PID-8 = \"W\"\n", Some("to-lab")).stored(&then).expect("it is tried");
    assert_eq!((tried.result, tried.outputs[0].was, tried.outputs[0].is), (TrialResult::Changed, false, true));
    assert_eq!(fields(&tried), ["PID-8 F > W"], "beside the message as received");
}

#[test]
fn a_message_that_does_not_go_through_the_transform_is_unaffected_by_it() {
    let mut then = stored(MESSAGE, TRANSFORM);
    then.outputs.clear();
    let tried = trial("match first\nrule everything { send to lab }\n", TRANSFORM, Some("to-lab"))
        .stored(&then)
        .expect("it is tried");
    assert_eq!(tried.result, TrialResult::Unaffected);
}

#[test]
fn a_transform_is_run_by_itself_on_a_file_s_message_and_through_a_service_where_one_is_named() {
    let raw = Bytes::from_static(MESSAGE);
    let trial = trial(RULES, "set PID-8 = \"W\"\n", Some("to-lab"));
    let alone = trial.alone(&raw);
    assert_eq!((alone.result, fields(&alone)), (TrialResult::Changed, vec!["PID-8 F > W".to_owned()]));
    let through = trial.file("in", &raw).expect("it is tried");
    assert_eq!((through.decision.0, fields(&through)), (Status::Routed, vec!["PID-8 F > W".to_owned()]));
    let none = trial.alone(&Bytes::from_static(b"no message"));
    assert_eq!((none.result, none.decision.0), (TrialResult::Errored, Status::Errored));
}

#[test]
fn names_that_are_not_there_are_refused_with_those_that_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let production = production(folder.path(), RULES, TRANSFORM);
    let error = Trial::new(production, Some("to-lap"), Clock::system()).expect_err("there is none");
    assert!(error.to_string().contains("to-lab"), "{error}");
    let trial = trial(RULES, TRANSFORM, None);
    assert!(trial.services_of("man").expect_err("there are none").to_string().contains("main"));
    assert_eq!(trial.services_of("main").expect("there are"), ["in"]);
    let error = trial.file("out", &Bytes::from_static(MESSAGE)).expect_err("there is none");
    assert!(error.to_string().contains("in"), "{error}");
}
