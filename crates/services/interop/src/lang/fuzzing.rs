//! Bodies of the fuzz targets: what must hold for any bytes at all.
//!
//! An input is a declared file, a NUL, and a message; without a message a small one of its own is used. Each function
//! returns for refused input and panics when a promise is broken.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use hl7::{Draft, Message};

use super::{Allowance, Context, Diagnostic, Rules, Source, Table, Tables, Transforms};

/// The operations rules may send to.
const OPERATIONS: [&str; 2] = ["billing", "registry"];

const MESSAGE: &[u8] = b"MSH|^~\\&|HIS|NORTH|HUB|X|20240229||ADT^A01^ADT_A01|1|P|2.5\rEVN|A01|20240229\r\
PID|1||4711^^^NORTH^MR~99^^^SSA^SS||Smith \\T\\ Sons^Ann^\"\"||19800229|F|\"\"||~\rPV1|1|I|ICU^101^2\r\
OBR|1|A\rOBX|7|NM|GLU^Glucose||5.4~6.0|mmol/L||N|||F\rOBX|7|NM|K||6.9||3.5-5.1|HH\\.br\\|||P\rOBR|2|B\rOBX|1|TX|||x\r";

fn tables() -> Arc<Tables> {
    let mut tables = Tables::new();
    let wards = Source { file: "wards.csv", text: "ICU,INT\nA & B,C^D\n,none\n" };
    tables.insert("wards", Table::parse_csv(wards).expect("the table is right"));
    Arc::new(tables)
}

fn context() -> Context<'static> {
    Context::new("2024-02-29T10:30:00Z".parse().expect("a timestamp"), "adt-in", "T0001")
}

/// Looks that a run has before it is given up: some ten thousands of operations.
const LOOKS: Duration = Duration::from_nanos(64);

/// A meter that counts how often this thread has looked at it: the same run always ends at the same statement.
fn looks() -> Duration {
    thread_local!(static LOOKED: Cell<u64> = const { Cell::new(0) });
    LOOKED.set(LOOKED.get() + 1);
    Duration::from_nanos(LOOKED.get())
}

/// The file and the message of an input.
fn parts(data: &[u8]) -> Option<(&str, &[u8])> {
    let end = data.iter().position(|byte| *byte == 0);
    let (text, message) = end.map_or((data, MESSAGE), |end| (&data[..end], &data[end + 1..]));
    Some((std::str::from_utf8(text).ok()?, message))
}

/// Every diagnostic points into its file and can be shown.
fn check(faults: &[Diagnostic], text: &str) {
    assert!(!faults.is_empty(), "refused without a reason");
    for fault in faults {
        let line = text.split('\n').nth(fault.line as usize - 1).expect("the line is in the file");
        assert!(fault.column as usize <= line.chars().count() + 1, "{fault}");
        assert!(fault.to_string().contains('^') && !fault.message.is_empty(), "{fault}");
    }
}

/// Transforms: any text compiles or is refused with diagnostics; a compiled transform runs on any message; its output
/// is a message with the segments of the draft; and running twice gives the same.
pub fn transform(data: &[u8]) {
    let Some((text, raw)) = parts(data) else { return };
    let inner = Source { file: "inner", text: "set MSH-5 = 'INNER'" };
    let sources = [("inner".to_owned(), inner), ("main".to_owned(), Source { file: "main", text })];
    match Transforms::compile(&sources, &tables()) {
        Ok(transforms) => run(&transforms, raw),
        Err(faults) => check(&faults, text),
    }
}

fn run(transforms: &Transforms, raw: &[u8]) {
    let Ok(message) = Message::parse(raw) else { return };
    let main = transforms.find("main").expect("it was compiled");
    let once = || {
        let mut draft = Draft::new(&message);
        let allowance = Allowance::new(LOOKS, looks);
        let outcome = transforms.run(main, &mut draft, &Context { allowance: Some(&allowance), ..context() });
        let mut written = Vec::new();
        draft.write_to(&mut written);
        (outcome, draft.len(), written)
    };
    let (outcome, segments, written) = once();
    if let Err(error) = &outcome {
        assert!(error.line >= 1 && !error.to_string().is_empty());
        return;
    }
    let again = Message::parse(&written).expect("what a transform makes is a message");
    assert_eq!(again.len(), segments, "every segment is read back as one");
    assert_eq!((outcome, segments, written), once(), "the same message and context give the same result");
}

/// Rules: any text compiles or is refused; the index never changes a decision.
pub fn rules(data: &[u8]) {
    let Some((text, raw)) = parts(data) else { return };
    let tables = tables();
    let inner = Source { file: "inner", text: "set MSH-5 = 'INNER'" };
    let transforms = Transforms::compile(&[("inner".to_owned(), inner)], &tables).expect("the transform is right");
    let source = Source { file: "main", text };
    let rules = match Rules::compile("main", source, &OPERATIONS, &transforms, &tables) {
        Ok(rules) => rules,
        Err(faults) => return check(&faults, text),
    };
    let Ok(message) = Message::parse(raw) else { return };
    let context = context();
    let indexed = rules.decide(&message, &context);
    match (indexed, rules.decide_without_index(&message, &context)) {
        (Ok(indexed), Ok(all)) => {
            assert_eq!((&indexed.sends, &indexed.verdict), (&all.sends, &all.verdict), "the index changed a decision");
            assert!(indexed.evaluated <= all.evaluated);
        }
        // A condition that the index excludes may be one that cannot be evaluated.
        (Ok(_), Err(_)) => {}
        (Err(error), Ok(_)) => panic!("the index made an error: {error}"),
        (Err(_), Err(_)) => {}
    }
}

/// Tables: any text is a table, or is refused with the place of the fault.
pub fn table(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Table::parse_csv(Source { file: "table", text }) {
        Ok(table) => assert!(table.len() <= text.lines().count()),
        Err(fault) => check(&[fault], text),
    }
}

/// Programs written by the grammar, each choice made by a byte: these compile, so that it is the machine that is tried.
/// The bytes before the first NUL choose, those after it are the message.
pub fn generated(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let mut writer = Writer { choices: data[..end].iter().copied(), text: String::new(), loops: 0, variables: 0 };
    writer.block(0);
    let message = data.get(end + 1..).filter(|message| Message::parse(message).is_ok()).unwrap_or(MESSAGE);
    let inner = Source { file: "inner", text: "set MSH-5 = 'INNER'\nif PID-8 = 'M' { skip }" };
    let source = Source { file: "main", text: &writer.text };
    let sources = [("inner".to_owned(), inner), ("main".to_owned(), source)];
    match Transforms::compile(&sources, &tables()) {
        Ok(transforms) => run(&transforms, message),
        Err(faults) => panic!("{}\nin:\n{}", faults[0], writer.text),
    }
}

/// Rules written by the grammar over a few fields and values, on messages made of the same: the index has many rules to
/// select from here, and must not change a decision.
pub fn generated_rules(data: &[u8]) {
    const KEYS: [&str; 6] = ["MSH-3", "MSH-4", "MSH-9.1", "MSH-9.2", "service", "MSH-3.1"];
    let values = ["'A'", "'B'", "'adt-in'", "''"];
    let mut choices = data.iter().copied();
    let mut choose = move |count: usize| choices.next().map_or(0, usize::from) % count;
    let header: Vec<&str> = (0..4).map(|_| ["A", "B", "", "A^B"][choose(4)]).collect();
    let message =
        format!("MSH|^~\\&|{}|{}|||||{}^{}|1\r", header[0], header[1], header[2].get(..1).unwrap_or(""), header[3]);
    let mut text = String::from(["match first\n", "match all\n"][choose(2)]);
    for rule in 0..=choose(70) {
        text.push_str(&format!("rule r{rule} when "));
        for side in 0..=choose(4) {
            text.push_str(["", " and ", " or ", " and not "][if side == 0 { 0 } else { 1 + choose(3) }]);
            let (key, value, other) = (KEYS[choose(6)], values[choose(4)], values[choose(4)]);
            text.push_str(&match choose(5) {
                0 | 1 => format!("{key} = {value}"),
                2 => format!("{key} in ({value}, {other})"),
                3 => format!("({key} = {value} or {key} = {other})"),
                _ => format!("{key} != {value}"),
            });
        }
        let does = ["send to billing", "send to registry", "send to billing", "drop 'x'"][choose(4)];
        text.push_str(&format!(" {{ {does} }}\n"));
    }
    assert!(!refused(&text), "the rules are right:\n{text}");
    rules(&[text.as_bytes(), b"\0", message.as_bytes()].concat());
}

fn refused(text: &str) -> bool {
    let transforms = Transforms::compile(&[], &tables()).expect("no transforms are right");
    Rules::compile("main", Source { file: "main", text }, &OPERATIONS, &transforms, &tables()).is_err()
}

/// Writes a program.
struct Writer<I> {
    choices: I,
    text: String,
    /// Loops around this point, each over segments; the variable of loop n is `s<n>`.
    loops: usize,
    /// Variables in scope: `v0`, `v1`, ...
    variables: usize,
}

const PLACES: [&str; 12] = [
    "PID-5",
    "PID-5.1",
    "PID-3[2].1",
    "PID-3[last]",
    "PV1-3.2.2",
    "OBX-5",
    "OBX[last]-5",
    "MSH-5",
    "PID-30",
    "OBX[3.1='GLU']-8",
    "PID-3[5='SS'].1",
    "ZZZ-1",
];
const MANY: [&str; 4] = ["OBX[*]-5", "PID-3[*].1", "OBX[*]-5[*]", "NTE[*]-3"];
const SEGMENTS: [&str; 6] = ["OBX", "OBR", "NK1", "PID", "OBX[last]", "OBX[2]"];
const TEXTS: [&str; 8] =
    ["'x'", "''", "'a & b | c'", "\"it's\"", "hl7(\"a^b~c&d\")", "hl7(\"x\\.br\\y\")", "null", "12.50"];
const UNARY: [&str; 8] = ["upper", "lower", "trim", "length", "upper", "lower", "trim", "length"];

/// Deepest nesting written.
const DEEPEST: usize = 3;

impl<I: Iterator<Item = u8>> Writer<I> {
    /// A number below `count`; 0 when the bytes are used up, which every rule takes as its simplest form.
    fn choose(&mut self, count: usize) -> usize {
        self.choices.next().map_or(0, usize::from) % count
    }

    fn pick(&mut self, from: &[&str]) {
        let chosen = self.choose(from.len());
        self.text.push_str(from[chosen]);
    }

    fn block(&mut self, depth: usize) {
        let variables = self.variables;
        for _ in 0..=self.choose(5) {
            self.statement(depth);
            self.text.push('\n');
        }
        self.variables = variables;
    }

    fn statement(&mut self, depth: usize) {
        match self.choose(if depth < DEEPEST { 13 } else { 9 }) {
            0 | 1 => {
                self.text.push_str("set ");
                self.target();
                self.text.push_str(" = ");
                self.value(depth);
            }
            2 => {
                let word = ["copy ", "move "][self.choose(2)];
                self.text.push_str(word);
                self.pick(&PLACES);
                self.text.push_str(" to ");
                self.target();
            }
            3 => {
                self.text.push_str("delete ");
                if self.choose(2) == 0 { self.target() } else { self.pick(&SEGMENTS) }
            }
            4 => {
                self.text.push_str("append PID-3 = ");
                self.value(depth);
            }
            5 => {
                let name = format!("v{}", self.variables);
                self.text.push_str(&format!("let {name} = "));
                self.value(depth);
                self.variables += 1;
            }
            6 => {
                self.text.push_str("insert NTE ");
                let word = ["after ", "before "][self.choose(2)];
                self.text.push_str(word);
                self.pick(&SEGMENTS);
            }
            7 => self.pick(&["call inner", "insert ZZZ at end", "if exists OBX[9] { skip }", "copy PID to PV1"]),
            8 => self.text.push_str("if exists PID-99 { fail 'never' }"),
            9 | 10 => self.choice(depth),
            11 => self.each("OBX", depth),
            _ => {
                let field = if self.loops > 0 { format!("s{}-5", self.loops - 1) } else { "PID-3".to_owned() };
                let name = format!("r{depth}");
                self.text.push_str(&format!(
                    "for each {field} as {name} {{ if {name} contains 'x' {{ delete {name} }} else {{ set {name}.2 = "
                ));
                self.value(DEEPEST);
                self.text.push_str(" } }");
            }
        }
    }

    fn each(&mut self, segment: &str, depth: usize) {
        let under =
            if self.loops > 0 && self.choose(2) == 1 { format!(" under s{}", self.loops - 1) } else { String::new() };
        self.text.push_str(&format!("for each {segment}{under} as s{} {{\n", self.loops));
        self.loops += 1;
        self.block(depth + 1);
        self.loops -= 1;
        self.text.push('}');
    }

    fn choice(&mut self, depth: usize) {
        self.text.push_str("if ");
        self.condition(depth);
        self.text.push_str(" {\n");
        self.block(depth + 1);
        self.text.push('}');
        if self.choose(2) == 1 {
            self.text.push_str(" else {\n");
            self.block(depth + 1);
            self.text.push('}');
        }
    }

    fn target(&mut self) {
        match self.choose(4) {
            0 if self.loops > 0 => self.text.push_str(&format!("s{}-5", self.loops - 1)),
            1 => self.pick(&MANY),
            _ => self.pick(&PLACES),
        }
    }

    fn value(&mut self, depth: usize) {
        match self.choose(if depth < DEEPEST { 12 } else { 4 }) {
            0 => self.pick(&TEXTS),
            1 if self.variables > 0 => self.text.push_str(&format!("v{}", self.variables - 1)),
            2 if self.loops > 0 => self.text.push_str(&format!("index(s{})", self.loops - 1)),
            1..=3 => self.pick(&PLACES),
            4 => {
                self.pick(&UNARY);
                self.wrapped("(", depth, ")");
            }
            5 => self.wrapped("substring(", depth, ", -3, 2)"),
            6 => self.wrapped("replace(", depth, ", '&', hl7(\"^\"))"),
            7 => self.wrapped("pad_left(", depth, ", 9, '0')"),
            8 => self.wrapped("lookup(wards, ", depth, ", split(PID-5, ' ', 2))"),
            9 => self.wrapped("date(", depth, ", 'hl7', 'dd.MM.yyyy', coalesce(PID-7, service))"),
            10 => {
                self.text.push_str("join(");
                self.pick(&MANY);
                self.text.push_str(", ', ')");
            }
            _ => {
                self.pick(&PLACES);
                self.wrapped(" + ", DEEPEST, " + 'z'");
            }
        }
    }

    fn wrapped(&mut self, before: &str, depth: usize, after: &str) {
        self.text.push_str(before);
        // Null cannot be joined to others; an argument is a place or a function of one.
        if depth + 1 < DEEPEST && !before.contains('+') {
            self.value(depth + 1)
        } else {
            self.pick(&PLACES)
        }
        self.text.push_str(after);
    }

    fn condition(&mut self, depth: usize) {
        match self.choose(if depth < DEEPEST { 8 } else { 5 }) {
            0 => {
                self.text.push_str("exists ");
                if self.choose(2) == 0 { self.pick(&PLACES) } else { self.pick(&SEGMENTS) }
            }
            1 => {
                let word = ["", "all ", "any "][self.choose(3)];
                self.text.push_str(word);
                self.pick(&MANY);
                self.relation(depth);
            }
            2..=4 => {
                self.pick(&PLACES);
                self.relation(depth);
            }
            5 => {
                self.text.push_str("not (");
                self.condition(depth + 1);
                self.text.push(')');
            }
            _ => {
                self.text.push('(');
                self.condition(depth + 1);
                let word = [" and ", " or "][self.choose(2)];
                self.text.push_str(word);
                self.condition(depth + 1);
                self.text.push(')');
            }
        }
    }

    fn relation(&mut self, depth: usize) {
        match self.choose(4) {
            0 => {
                self.pick(&[" is empty", " is not null", " is absent", " in ('x', 12)", " not in table wards", " > 5"])
            }
            1 => self.pick(&[
                " matches '*a?'",
                " contains '&'",
                " not starts with 'S'",
                " ends with ''",
                " <= '20240101'",
            ]),
            2 => self.wrapped(" = ", depth, ""),
            _ => self.wrapped(" != ", depth, ""),
        }
    }
}
