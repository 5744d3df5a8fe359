//! Golden scripts: `testscripts/lang/*.txt`, each with several cases of declared files and messages, and their results.
//!
//! ```text
//! == a title, which is the claim
//! -- table wards                     also: transform NAME, rules, message, values, conditions
//! ICU,INT
//! -- transform main                  the transform `main` is run
//! set PV1-3.1 = lookup(wards, PV1-3.1)
//! -- message                         one segment a line
//! MSH|^~\&|A
//! PV1|1|I|ICU
//! -- result
//! MSH|^~\&|A
//! PV1|1|I|INT
//! ```
//!
//! `values` has lines `EXPRESSION => RESULT` and `conditions` lines `CONDITION => true`, each run on the message.
//! `UPDATE=1 cargo test -p interop lang` writes the results that come out; read the difference before committing it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hl7::{Draft, Message};

use super::{Context, Diagnostic, Outcome, Rules, RunError, Source, Table, Tables, Transforms, Verdict};

/// The operations the scripts' rules may send to.
const OPERATIONS: [&str; 4] = ["billing", "laboratory", "pharmacy", "registry"];

/// A section of a case: its kind, its name, its lines.
#[derive(Clone, Debug)]
struct Section {
    kind: String,
    name: String,
    text: String,
}

#[derive(Clone, Debug)]
struct Case {
    title: String,
    sections: Vec<Section>,
}

fn read_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_owned(), sections: Vec::new() });
        } else if let Some(head) = line.strip_prefix("-- ") {
            let (kind, name) = head.split_once(' ').unwrap_or((head, ""));
            let case = cases.last_mut().expect("a script begins with a case");
            case.sections.push(Section { kind: kind.to_owned(), name: name.to_owned(), text: String::new() });
        } else if let Some(section) = cases.last_mut().and_then(|case| case.sections.last_mut()) {
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    for section in cases.iter_mut().flat_map(|case| &mut case.sections) {
        section.text.truncate(section.text.trim_end().len());
    }
    cases
}

fn write_cases(cases: &[Case]) -> String {
    let mut text = String::new();
    for case in cases {
        writeln!(text, "== {}", case.title).expect("a string takes all");
        for Section { kind, name, text: lines } in &case.sections {
            let name = if name.is_empty() { String::new() } else { format!(" {name}") };
            let end = if lines.is_empty() { "" } else { "\n" };
            write!(text, "-- {kind}{name}\n{lines}{end}").expect("a string takes all");
        }
        text.push('\n');
    }
    text
}

impl Case {
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Section> {
        self.sections.iter().filter(move |section| section.kind == kind)
    }

    fn tables(&self) -> Result<Arc<Tables>, String> {
        let mut tables = Tables::new();
        for section in self.of("table") {
            let file = format!("tables/{}.csv", section.name);
            let table =
                Table::parse_csv(Source { file: &file, text: &section.text }).map_err(|fault| fault.to_string())?;
            tables.insert(section.name.as_str(), table);
        }
        Ok(Arc::new(tables))
    }

    fn transforms(&self, tables: &Arc<Tables>) -> Result<Transforms, String> {
        let files: Vec<(String, String, &str)> = self
            .of("transform")
            .map(|section| (section.name.clone(), format!("transforms/{}.hl7t", section.name), section.text.as_str()))
            .collect();
        let sources: Vec<(String, Source<'_>)> =
            files.iter().map(|(name, file, text)| (name.clone(), Source { file, text })).collect();
        Transforms::compile(&sources, tables).map_err(|faults| joined(&faults))
    }

    fn message(&self) -> Vec<u8> {
        let section = self.of("message").last().expect("a case that runs has a message");
        // \xNN means a byte, so that messages in other character sets can be written here.
        let mut raw = Vec::new();
        let mut rest = section.text.as_str();
        while let Some((before, after)) = rest.split_once("\\x{") {
            raw.extend_from_slice(before.as_bytes());
            raw.push(u8::from_str_radix(&after[..2], 16).expect("two hexadecimal digits"));
            rest = &after[3..];
        }
        raw.extend_from_slice(rest.as_bytes());
        raw.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
        raw.push(b'\r');
        raw
    }

    /// The result of the case, or its error.
    fn outcome(&self) -> String {
        let run = || -> Result<String, String> {
            let tables = self.tables()?;
            let transforms = self.transforms(&tables)?;
            if let Some(rules) = self.of("rules").next() {
                return self.decide(rules, &transforms, &tables);
            }
            if self.of("message").next().is_none() {
                return Ok("compiles".to_owned());
            }
            run_main(&transforms, &self.message())
        };
        run().unwrap_or_else(|fault| fault)
    }

    fn decide(&self, rules: &Section, transforms: &Transforms, tables: &Arc<Tables>) -> Result<String, String> {
        let source = Source { file: "rules/main.rules", text: &rules.text };
        let rules =
            Rules::compile("main", source, &OPERATIONS, transforms, tables).map_err(|faults| joined(&faults))?;
        let mut text = String::new();
        for section in self.of("message") {
            let case = Case { title: String::new(), sections: vec![section.clone()] };
            let raw = case.message();
            let message = Message::parse(&raw).expect("the script's messages have a header");
            let decision = rules.decide(&message, &context()).map_err(|error| error.to_string())?;
            let verdict = match &decision.verdict {
                Verdict::Routed => decision
                    .sends
                    .iter()
                    .map(|send| {
                        let using =
                            send.transform.map_or(String::new(), |id| format!(" using {}", transforms.name(id)));
                        format!("{}{using}", OPERATIONS[send.operation])
                    })
                    .collect::<Vec<_>>()
                    .join(" + "),
                Verdict::Dropped { why } => format!("dropped: {why}"),
                Verdict::Rejected { why, code } => format!("rejected {code}: {why}"),
                Verdict::Unmatched => "unmatched".to_owned(),
            };
            let name = if section.name.is_empty() { "message" } else { &section.name };
            writeln!(text, "{name} -> {verdict} | {} | evaluated {}", decision.reason, decision.evaluated)
                .expect("a string takes all");
        }
        Ok(text.trim_end().to_owned())
    }

    /// Lines of `values` or `conditions` with their results.
    fn lines(&self, section: &Section) -> String {
        let raw = if self.of("message").next().is_some() { self.message() } else { b"MSH|^~\\&|\r".to_vec() };
        let tables = self.tables().expect("the tables of a case of values are right");
        let mut text = String::new();
        for line in section.text.lines() {
            let input = line.split("=>").next().expect("there is always a first part").trim_end();
            let result = match section.kind.as_str() {
                "values" => evaluate(&format!("insert ZZZ at end as z\nset z-1 = {input}"), &raw, &tables),
                _ => evaluate(
                    &format!("insert ZZZ at end as z\nif {input} {{ set z-1 = 'true' }} else {{ set z-1 = 'false' }}"),
                    &raw,
                    &tables,
                ),
            };
            writeln!(text, "{input} => {result}").expect("a string takes all");
        }
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// Runs a program that leaves its result in ZZZ-1; on a fault, the first line of it.
fn evaluate(program: &str, raw: &[u8], tables: &Arc<Tables>) -> String {
    let sources = [("main".to_owned(), Source { file: "main", text: program })];
    let result = Transforms::compile(&sources, tables)
        .map_err(|faults| joined(&faults))
        .and_then(|transforms| run_main(&transforms, raw));
    match result {
        Ok(message) => {
            let line = message.lines().last().unwrap_or("").to_owned();
            line.strip_prefix("ZZZ").map(|rest| rest.strip_prefix('|').unwrap_or(rest).to_owned()).unwrap_or(line)
        }
        Err(fault) => fault.lines().next().unwrap_or("").to_owned(),
    }
}

fn run_main(transforms: &Transforms, raw: &[u8]) -> Result<String, String> {
    let message = Message::parse(raw).expect("the script's messages have a header");
    let mut draft = Draft::new(&message);
    let main = transforms.find("main").expect("a case that runs has a transform `main`");
    match transforms.run(main, &mut draft, &context()).map_err(|error: RunError| format!("error: {error}"))? {
        Outcome::Skip => Ok("skip".to_owned()),
        Outcome::Send => {
            let mut out = Vec::new();
            draft.write_to(&mut out);
            Ok(shown(&out))
        }
    }
}

/// A message as the scripts write it.
fn shown(raw: &[u8]) -> String {
    let mut text = String::new();
    for chunk in raw.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| write!(text, "\\x{{{byte:02x}}}").expect("a string takes all"));
    }
    text.replace('\r', "\n").trim_end().to_owned()
}

fn joined(faults: &[Diagnostic]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn context() -> Context<'static> {
    Context::new("2024-02-29T10:30:00.25Z".parse().expect("a timestamp"), "adt-in", "T0001")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/lang")
}

#[test]
fn every_script_gives_what_it_says() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder is part of the crate")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "txt")) {
        let text = std::fs::read_to_string(file).expect("scripts are UTF-8");
        let mut cases = read_cases(&text);
        for case in &mut cases {
            count += 1;
            let before = case.clone();
            for section in &mut case.sections {
                match section.kind.as_str() {
                    "values" | "conditions" => section.text = before.lines(section),
                    "result" => section.text = before.outcome(),
                    _ => {}
                }
            }
            for (was, is) in before.sections.iter().zip(&case.sections).filter(|(was, is)| was.text != is.text) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                wrong.push(format!("{name}, {}:\n--- expected\n{}\n--- came out\n{}\n", case.title, was.text, is.text));
            }
        }
        if update {
            std::fs::write(file, write_cases(&cases)).expect("the scripts can be written");
        }
    }
    assert!(count > 0, "no scripts in {}", folder().display());
    assert!(update || wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Errors become reasons, which are shown to readers who do not see what is in a message.
#[test]
fn no_error_of_a_script_quotes_a_value_of_its_message() {
    let files = std::fs::read_dir(folder()).expect("the folder is part of the crate");
    let texts = files.map(|file| std::fs::read_to_string(file.expect("an entry").path()).expect("scripts are UTF-8"));
    let cases: Vec<Case> = texts.flat_map(|text| read_cases(&text)).collect();
    let mut errors = 0;
    for case in cases.iter().filter(|case| case.of("message").next().is_some() && case.of("result").next().is_some()) {
        let outcome = case.outcome();
        let Some(error) = outcome.strip_prefix("error: ") else { continue };
        errors += 1;
        let written: String = case.sections.iter().filter(|s| s.kind != "message").map(|s| s.text.as_str()).collect();
        let written = written.replace(&outcome, "");
        let message = String::from_utf8_lossy(&case.message()).into_owned();
        let values = message.split(['|', '^', '~', '&', '\r', '\n', ' ']).filter(|value| value.len() > 3);
        for value in values.filter(|value| !written.contains(value)) {
            assert!(!error.contains(value), "{}: `{value}` is in: {error}", case.title);
        }
    }
    assert!(errors >= 5, "only {errors} scripts end with an error");
}

/// The fenced blocks of a page: the words after the opening fence, and the text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) if !info.contains('`') => open = Some((info.to_owned(), String::new())),
            (_, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

#[test]
fn every_example_of_the_page_is_as_it_says() {
    let page = include_str!("../../../../../docs/language.md");
    let blocks = blocks(page);
    let section = |kind: &str, name: &str, text: &str| Section {
        kind: kind.to_owned(),
        name: name.to_owned(),
        text: text.trim_end().to_owned(),
    };
    let mut common = Vec::new();
    for (info, text) in &blocks {
        match info.split_once(' ').unwrap_or((info, "")) {
            ("hl7", "message") => common.push(section("message", "", text)),
            ("csv", name) => common.push(section("table", name, text)),
            ("hl7t", name) => common.push(section("transform", name, text)),
            _ => {}
        }
    }
    let mut examples = 0;
    for (at, (info, text)) in blocks.iter().enumerate() {
        let mut case = Case { title: info.clone(), sections: common.clone() };
        let result = match info.as_str() {
            "rules" => {
                case.sections.push(section("rules", "", text));
                case.outcome()
            }
            info if info.starts_with("hl7t") => {
                case.sections.push(section("transform", "main", text));
                case.outcome()
            }
            _ => continue,
        };
        examples += 1;
        assert!(result.starts_with("MSH|") || result.contains(" -> "), "{info}:\n{text}\n{result}");
        if let Some((_, expected)) = blocks.get(at + 1).filter(|(info, _)| info == "hl7 result") {
            assert_eq!(result, expected.trim_end(), "{info}");
        }
        if info == "hl7t conditions" {
            assert!(result.contains("PID|1|known|"), "{result}");
        }
    }
    assert!(examples >= 7, "the page has {examples} examples");
}

#[test]
fn a_hundred_rules_cost_no_more_evaluations_than_one() {
    let tables = Arc::new(Tables::new());
    let transforms = Transforms::compile(&[], &tables).expect("no transforms are right");
    let raw = b"MSH|^~\\&|HIS|NORTH|||||ADT^A07|1|P\rPID|1\r";
    let message = Message::parse(raw).expect("a header");
    for count in [1, 10, 100, 1000] {
        let mut text = String::from("match all\n");
        for rule in 0..count {
            let (event, sender) = (rule % 50, rule / 50);
            let sender = if sender == 0 { "HIS".to_owned() } else { format!("HIS{sender}") };
            writeln!(text, "rule r{rule} when MSH-9.1 = 'ADT' and (MSH-9.2 = 'A{event:02}' and MSH-3 in ('{sender}', 'X')) {{ send to billing }}").expect("a string takes all");
        }
        text += "rule lab when (MSH-9.1 = 'ORU' or MSH-9.1 = 'ORM') and exists PID { send to billing }\n";
        text += "rule any when not MSH-9.1 = 'ORU' { send to billing }\n";
        let source = Source { file: "main.rules", text: &text };
        let rules = Rules::compile("main", source, &OPERATIONS, &transforms, &tables).expect("the rules are right");
        let decision = rules.decide(&message, &context()).expect("the conditions can be evaluated");
        let held = if count > 7 { "main: r7, any" } else { "main: any" };
        assert_eq!(decision.reason, held, "{count} rules");
        assert_eq!(decision.evaluated, if count > 7 { 2 } else { 1 }, "{count} rules");
    }
}

/// The bodies of the fuzz targets, on inputs made from fixed seeds; the fuzzer continues from here.
#[test]
fn no_program_breaks_a_promise() {
    const SEEDS: u64 = 3000;
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut data: Vec<u8> = (0..rng.usize(1..120)).map(|_| rng.u8(1..)).collect();
        let checked = std::panic::catch_unwind(|| {
            super::fuzzing::generated(&data);
            super::fuzzing::generated_rules(&data);
        });
        assert!(checked.is_ok(), "generated program of seed {seed} of this test");
        // The declared files of the scripts, damaged.
        let scripts =
            [include_str!("../../testscripts/lang/statements.txt"), include_str!("../../testscripts/lang/rules.txt")];
        let text = scripts[seed as usize % 2];
        let start = (0..text.len()).map(|_| rng.usize(..text.len())).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        data = text.as_bytes()[start..text.len().min(start + 300)].to_vec();
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(..data.len());
            data[at] = b"{}()[]'\"^-.,=|\n 1aP"[rng.usize(..19)];
        }
        let checked = std::panic::catch_unwind(|| {
            super::fuzzing::transform(&data);
            super::fuzzing::rules(&data);
            super::fuzzing::rules(&[b"match all\n", data.as_slice()].concat());
            super::fuzzing::table(&data);
        });
        assert!(checked.is_ok(), "damaged script of seed {seed} of this test: {}", String::from_utf8_lossy(&data));
    }
}

#[test]
fn nesting_is_refused_before_it_is_too_deep_for_the_stack() {
    let tables = Arc::new(Tables::new());
    let deep = 100_000;
    let programs = [
        format!("if {}PID-8 = 'x'{} {{ skip }}", "(".repeat(deep), ")".repeat(deep)),
        format!("if {}PID-8 = 'x' {{ skip }}", "not ".repeat(deep)),
        format!("set PID-8 = {}'x'{}", "upper(".repeat(deep), ")".repeat(deep)),
        format!("{}skip{}", "if PID-8 = 'x' {".repeat(deep), "}".repeat(deep)),
    ];
    for program in programs {
        let sources = [("main".to_owned(), Source { file: "main", text: &program })];
        let faults = Transforms::compile(&sources, &tables).expect_err("it is nested too deep");
        assert!(faults[0].message.contains("nested more than 64 deep"), "{}", faults[0].message);
    }
    let chain: Vec<(String, String)> = (0..100).map(|at| (format!("t{at}"), format!("call t{}", at + 1))).collect();
    let mut sources: Vec<(String, Source<'_>)> =
        chain.iter().map(|(name, text)| (name.clone(), Source { file: name, text })).collect();
    sources.push(("t100".to_owned(), Source { file: "t100", text: "skip" }));
    let faults = Transforms::compile(&sources, &tables).expect_err("the calls are too deep");
    assert!(faults[0].message.contains("call each other more than 32 deep"), "{}", faults[0].message);
}

#[test]
fn files_may_have_any_line_ends() {
    let tables = Arc::new(Tables::new());
    let program = "set PID-2 = 'x' # here\n\tif PID-8 = 'F'\n\t{\n\t\tset PID-4 = 'y' }\nset PID-9 = 'z'";
    for ends in ["\n", "\r\n"] {
        let result = evaluate(&program.replace('\n', ends), b"MSH|^~\\&|\rPID|1|||||||F\r", &tables);
        assert_eq!(result, "PID|1|x||y||||F|z");
    }
    let text = "match first\r\nrule a when MSH-3 = 'x'\r\n{\r\nsend to billing\r\n}\r\n";
    let transforms = Transforms::compile(&[], &tables).expect("no transforms are right");
    Rules::compile("main", Source { file: "main", text }, &OPERATIONS, &transforms, &tables).expect("it is right");
}

#[test]
fn what_a_transform_keeps_and_makes_is_bounded_whatever_the_message_has_in_it() {
    let tables = Arc::new(Tables::new());
    let mut raw = format!("MSH|^~\\&|A\rPID|1||{}\r", "x".repeat(1 << 20)).into_bytes();
    let doubled = format!("let t = PID-3\n{}", "let t = t + t\n".repeat(5));
    let kept = |count: usize| (0..count).map(|at| format!("let v{at} = t\n")).collect::<String>();
    let few = evaluate(&format!("{doubled}{}set PID-3 = 'y'", kept(6)), &raw, &tables);
    assert_eq!(few, "PID|1||y");
    let many = evaluate(&format!("{doubled}{}", kept(60)), &raw, &tables);
    assert!(many.contains("bytes in variables of one message"), "{}", &many[..many.len().min(200)]);
    // Twenty thousand values with a mebibyte between each two.
    raw.extend_from_slice(&b"OBX|1|TX|A||y\r".repeat(20_000));
    let joined = evaluate("let j = join(OBX[*]-5, PID-3)", &raw, &tables);
    assert!(joined.contains("bytes in a value of one message"), "{}", &joined[..joined.len().min(200)]);
}
