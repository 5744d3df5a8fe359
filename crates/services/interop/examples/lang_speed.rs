//! How long a transform and a routing decision take: `cargo run --release -p interop --example lang_speed`.
//!
//! Each program runs on one message of about 1.5 KB, the median of public corpora (measured 2026-11-21: 1,547 bytes);
//! the figure is the best of several rounds, per run. Where the system tells it (Linux), processor time is measured,
//! so that a busy machine changes the figures little; elsewhere time on the wall.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hl7::{Draft, Message};
use interop::lang::{Context, Rules, Source, Table, Tables, Transforms};

/// Runs in a round, and rounds: about a second for all programs.
const RUNS: u32 = 100_000;
const ROUNDS: u32 = 4;

const PROGRAMS: [(&str, &str); 6] = [
    ("nothing", ""),
    ("four constants", "set MSH-5 = 'BILLING'\nset PID-18 = 'A1'\nset PV1-19 = '77'\nset EVN-5 = 'TERRACE'"),
    (
        "two constants, two copies",
        "set MSH-5 = 'BILLING'\ncopy PID-3[2] to PID-2\ncopy PV1-3 to PV1-6\nset EVN-5 = 'TERRACE'",
    ),
    (
        "four segments: constant, copy, lookup, date",
        "set MSH-5 = 'BILLING'\ncopy PID-3[2] to PID-2\nset PV1-3.1 = lookup(wards, PV1-3.1)\n\
         set EVN-2 = date(EVN-2, 'hl7', 'yyyyMMddHHmm')",
    ),
    (
        "condition and text functions",
        "if PID-8 = 'F' and PV1-2 in ('I', 'E') { set PID-5.1 = upper(PID-5.1) } else { set PID-5.1 = lower(PID-5.1) }",
    ),
    ("a loop over segments", "for each NK1 as n { set n-1 = index(n); set n-7 = 'N' }"),
];

fn main() {
    let raw = message();
    let message = Message::parse(&raw).expect("the message has a header");
    let wards = Table::parse_csv(Source { file: "wards.csv", text: "ICU,INT\nW3,EAST\n" }).expect("a table");
    let mut tables = Tables::new();
    tables.insert("wards", wards);
    let tables = Arc::new(tables);
    let sources: Vec<(String, Source<'_>)> =
        PROGRAMS.iter().map(|(name, text)| ((*name).to_owned(), Source { file: name, text })).collect();
    let transforms = Transforms::compile(&sources, &tables).unwrap_or_else(|faults| panic!("{}", faults[0]));
    let context = Context::new("2024-02-29T10:30:00Z".parse().expect("a timestamp"), "adt-in", "T0001");

    println!("message of {} bytes, {} segments", raw.len(), message.len());
    let draft = measure(|| drop(black_box(Draft::new(&message))));
    println!("{draft:>8.0} ns  making a draft");
    for (name, _) in PROGRAMS {
        let id = transforms.find(name).expect("it was compiled");
        let run = measure(|| {
            let mut draft = Draft::new(&message);
            let _ = black_box(transforms.run(id, &mut draft, &context).expect("it runs on this message"));
            black_box(&draft);
        });
        println!("{run:>8.0} ns  draft and run: {name}");
    }
    decisions(&transforms, &tables, &message, &context);
}

/// Rule sets of one and a hundred rules, of which the last holds.
fn decisions(transforms: &Transforms, tables: &Arc<Tables>, message: &Message<'_>, context: &Context<'_>) {
    for count in [1, 100] {
        let mut text = String::from("match first\n");
        for rule in 1..count {
            text += &format!("rule r{rule} when MSH-9.1 = 'ADT' and MSH-9.2 = 'X{rule:02}' {{ send to out }}\n");
        }
        text += "rule last when MSH-9.1 = 'ADT' and MSH-9.2 = 'A01' and MSH-4 = 'NORTH' { send to out }\n";
        let source = Source { file: "main.rules", text: &text };
        let rules = Rules::compile("main", source, &["out"], transforms, tables).unwrap_or_else(|f| panic!("{}", f[0]));
        let run = measure(|| drop(black_box(rules.decide(message, context).expect("the conditions can be evaluated"))));
        println!("{run:>8.0} ns  decide: {count} rules");
    }
}

/// Nanoseconds per run, the best round.
fn measure(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, processor) = (Instant::now(), processor_time());
        (0..RUNS).for_each(|_| run());
        let spent = match (processor, processor_time()) {
            (Some(before), Some(after)) => (after - before) as f64,
            _ => start.elapsed().as_nanos() as f64,
        };
        best = best.min(spent / f64::from(RUNS));
    }
    best
}

/// Nanoseconds this thread has run: the first number of the scheduler's statistics (Linux, proc_pid_schedstat(5)).
fn processor_time() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// An admission of about 1.5 KB.
fn message() -> Vec<u8> {
    let mut text = String::from(
        "MSH|^~\\&|HIS|NORTH|ENGINE|TERRACE|20240229102955||ADT^A01^ADT_A01|000123456|P|2.5.1|||NE|AL\r\
         EVN|A01|20240229102954||||20240229102900|NORTH\r\
         PID|1||4711^^^NORTH^MR~998877^^^SSA^SS||Smith \\T\\ Sons^Ann^Marie^^Mrs^^L||19800229|F||2106-3^White^HL70005|\
         12 Long Street^^Springfield^OH^45501^USA^H||^PRN^PH^^1^937^5551234|^WPN^PH^^1^937^5559876|EN|M|CHR|\
         4711-01^^^NORTH^AN|||||||||||N\r\
         PD1|||Springfield Practice^^1122|1234^Good^Doctor^^^Dr\r",
    );
    for number in 1..=4 {
        text += &format!(
            "NK1|{number}|Smith^Relative{number}^^^^^L|SPO^Spouse^HL70063|12 Long Street^^Springfield^OH^45501^USA^H|\
             ^PRN^PH^^1^937^555000{number}||C^Emergency^HL70131\r"
        );
    }
    text += "PV1|1|I|ICU^101^2^NORTH|E|||1234^Good^Doctor^^^Dr|5678^Other^Doctor^^^Dr||MED||||1|||1234^Good^Doctor|IP|\
             V0001^^^NORTH^VN|||||||||||||||||||||NORTH|||||20240229102900\r\
             PV2|||R07.9^Chest pain^I10\r\
             AL1|1|DA|1191^Aspirin^RXNORM|MO|Rash\r\
             DG1|1||R07.9^Chest pain, unspecified^I10||20240229102900|A\r\
             IN1|1|PPO^Preferred^L|77^Health Co|Health Co of Ohio|PO Box 1^^Dayton^OH^45401|||G123||||20230101|||PPO|\
             Smith^Ann|SEL|19800229|12 Long Street^^Springfield^OH^45501\r";
    text.into_bytes()
}
