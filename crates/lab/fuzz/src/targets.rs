//! The targets: every function that reads bytes from outside, with what a good input for it looks like.

use crate::{seeds, stored};

/// One target.
pub struct Target {
    /// Its name on the command line and in the names of artifacts.
    pub name: &'static str,
    /// Feeds it one input; panics only if a promise of the code under test is broken.
    pub run: fn(&[u8]),
    /// Built-in inputs.
    pub seeds: &'static [&'static [u8]],
    /// Extensions of files that are inputs too.
    pub extensions: &'static [&'static str],
    /// The bytes before those of such a file, for a target that reads more than a file.
    pub before: &'static [u8],
    /// Short strings that mean something in its format.
    pub words: &'static [&'static str],
}

/// Words of HL7: delimiters, line ends, frames, names, escapes.
const HL7_WORDS: &[&str] = &[
    "|",
    "^",
    "~",
    "\\",
    "&",
    "#",
    "\r",
    "\n",
    "\r\n",
    "\u{b}",
    "\u{1c}",
    "\u{1c}\r",
    "\0",
    "\"\"",
    "\u{feff}",
    "MSH|",
    "MSH|^~\\&|",
    "PID|",
    "OBX|",
    "MSA|AA|",
    "ERR|",
    "FHS|",
    "BHS|",
    "BTS|",
    "FTS|",
    "ZZ1|",
    "\\F\\",
    "\\E\\",
    "\\X0D\\",
    "\\.br\\",
    "ACK",
    "AL",
    "NE",
    "2.3",
    "2.5.1",
    "UNICODE UTF-8",
    "8859/1",
    "\u{e9}",
];

/// Words of paths.
const PATH_WORDS: &[&str] =
    &["-", ".", ":", "[", "]", "(", ")", "[*]", "[last]", "='", "'", "''", "\"", "PID", "OBX", "0", "1", "99999"];

/// Words of the language of transforms and rules.
const LANGUAGE_WORDS: &[&str] = &[
    "set ",
    "copy ",
    "move ",
    "to ",
    "append ",
    "delete ",
    "insert ",
    "after ",
    "before ",
    "at end ",
    "as ",
    "for each ",
    "under ",
    "if ",
    "else ",
    "let ",
    "call ",
    "fail ",
    "skip",
    "match first\n",
    "match all\n",
    "rule ",
    "when ",
    "send to ",
    "using ",
    "drop ",
    "reject ",
    "code ",
    "otherwise ",
    "and ",
    "or ",
    "not ",
    "exists ",
    "any ",
    "all ",
    "in ",
    "in table ",
    "contains ",
    "starts with ",
    "matches ",
    "is empty",
    "is null",
    "lookup(",
    "substring(",
    "date(",
    "now(",
    "replace(",
    "split(",
    "join(",
    "pad_left(",
    "add_days(",
    "hl7(",
    "text(",
    "coalesce(",
    "count(",
    "{",
    "}",
    "(",
    ")",
    ",",
    ";",
    "\n",
    "#",
    "=",
    "!=",
    "<=",
    "'",
    "\"",
    "''",
    "+",
    "-1",
    "0",
    "99999999999",
    "[*]",
    "[last]",
    "PID-5.1",
    "OBX",
    "o-5",
    "'hl7'",
    "wards",
    "main",
    "inner",
    "billing",
    "\0",
    "null",
    "service",
    "\u{e9}",
];

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "reading",
        run: hl7::fuzzing::reading,
        seeds: seeds::READINGS,
        words: HL7_WORDS,
        before: b"\0",
        ..HL7_FILES
    },
    Target {
        name: "mask",
        run: hl7::fuzzing::mask,
        seeds: seeds::MASKS,
        words: HL7_WORDS,
        before: b"PID-3.1\nOBX-5\n\0",
        ..HL7_FILES
    },
    Target { name: "message", run: hl7::fuzzing::message, seeds: seeds::MESSAGES, words: HL7_WORDS, ..HL7_FILES },
    Target {
        name: "path",
        run: hl7::fuzzing::path,
        seeds: seeds::PATHS,
        words: PATH_WORDS,
        extensions: &[],
        before: b"",
    },
    Target {
        name: "draft",
        run: hl7::fuzzing::draft,
        seeds: seeds::DRAFTS,
        words: &[
            "\n=",
            "\n+",
            "\n-",
            "\ni",
            "\nd",
            "\ns",
            "\t",
            "\0",
            "PID-5[2].1",
            "OBX[*]-3",
            "OBX[3.1='GLU']-5",
            "|",
            "^",
            "~",
            "&",
            "\r",
        ],
        before: seeds::DRAFT_SCRIPT,
        ..HL7_FILES
    },
    Target {
        name: "escape",
        run: hl7::fuzzing::escape,
        seeds: seeds::ESCAPES,
        words: HL7_WORDS,
        before: b"^~\\&#*!?$%",
        ..HL7_FILES
    },
    Target { name: "ack", run: hl7::fuzzing::ack, seeds: seeds::MESSAGES, ..HL7_FILES },
    Target { name: "batch", run: hl7::fuzzing::batch, seeds: seeds::BATCHES, ..HL7_FILES },
    Target { name: "mllp", run: hl7::fuzzing::mllp, seeds: seeds::STREAMS, before: b"\xfc\x07\x0b", ..HL7_FILES },
    Target {
        name: "transform",
        run: interop::lang::fuzzing::transform,
        seeds: seeds::TRANSFORMS,
        extensions: &["hl7t"],
        before: b"",
        words: LANGUAGE_WORDS,
    },
    Target {
        name: "rules",
        run: interop::lang::fuzzing::rules,
        seeds: seeds::RULES,
        extensions: &["rules"],
        before: b"",
        words: LANGUAGE_WORDS,
    },
    Target {
        name: "table",
        run: interop::lang::fuzzing::table,
        seeds: &[b"# c\nA,B\n\"a, \"\"b\"\"\" , c\n,\n", b"A\n\"A\n\"A\"b,\r\nA,1\nA,2\n"],
        extensions: &["csv"],
        before: b"",
        words: &[",", "\"", "\"\"", "#", "\n", "\r\n", " ", "\u{feff}", "\u{e9}"],
    },
    Target { name: "generated", run: interop::lang::fuzzing::generated, seeds: seeds::CHOICES, ..BINARY },
    Target { name: "record", run: interop::fuzzing::record, seeds: seeds::RECORDS, ..BINARY },
    Target { name: "row", run: interop::fuzzing::row, seeds: seeds::RECORDS, ..BINARY },
    Target { name: "transfer", run: interop::fuzzing::transfer, seeds: seeds::TRANSFERS, ..BINARY },
    Target { name: "audit", run: node::audit::fuzzing::record, seeds: seeds::AUDIT_RECORDS, ..BINARY },
    Target { name: "directory", run: node::identity::ldap::fuzzing::answers, seeds: seeds::LDAP_ANSWERS, ..BINARY },
    Target {
        name: "provider",
        run: node::identity::oidc::fuzzing::provider,
        seeds: seeds::PROVIDERS,
        words: PROVIDER_WORDS,
        ..BINARY
    },
    Target {
        name: "replies",
        run: node_metrics::alerts::read_replies,
        seeds: seeds::REPLIES,
        words: REPLY_WORDS,
        ..BINARY
    },
    Target { name: "envelope", run: encryption::fuzzing::envelope, seeds: seeds::ENVELOPES, ..BINARY },
    Target { name: "transaction", run: store::fuzzing::transaction, seeds: seeds::TRANSACTIONS, ..BINARY },
    Target { name: "journal", run: stored::journal, seeds: seeds::DAMAGES, ..BINARY },
    Target { name: "wire", run: sql::wire::fuzzing::wire, seeds: seeds::CONVERSATIONS, words: WIRE_WORDS, ..BINARY },
    Target { name: "value", run: sql::wire::fuzzing::value, seeds: seeds::VALUES, words: VALUE_WORDS, ..BINARY },
    Target { name: "copy", run: sql::wire::fuzzing::copy, seeds: seeds::COPIES, words: COPY_WORDS, ..BINARY },
    Target {
        name: "nbd-requests",
        run: nbd::fuzzing::client_bytes,
        seeds: seeds::NBD_CLIENTS,
        words: NBD_WORDS,
        ..BINARY
    },
    Target {
        name: "nbd-replies",
        run: nbd::fuzzing::server_bytes,
        seeds: seeds::NBD_SERVERS,
        words: NBD_WORDS,
        ..BINARY
    },
    Target {
        name: "nbd-device",
        run: nbd::fuzzing::device_bytes,
        seeds: seeds::NBD_REPLIES,
        words: NBD_WORDS,
        ..BINARY
    },
    Target {
        name: "nbd-uri",
        run: nbd::fuzzing::uri,
        seeds: &[b"nbds://[::1]:10809/vol-7/b@41", b"nbd+unix:///a%20b?socket=/run/a.sock"],
        words: &["nbd://", "nbd+unix:///", "?socket=", "%2f", "%", "@41", "[::1]", ":65535", "/", "&", "#"],
        ..BINARY
    },
    Target {
        name: "trace",
        run: plan::fuzzing::trace,
        seeds: seeds::TRACES,
        words: &[
            ",",
            "+",
            "\n",
            "\r\n",
            " ",
            "Q",
            "FWFS",
            "8,0",
            "GET",
            "get",
            "2a",
            "Read",
            "0.5",
            "18446744073709551615",
            "\0",
        ],
        ..BINARY
    },
    Target {
        name: "prices",
        run: plan::fuzzing::prices,
        seeds: seeds::PRICES,
        words: &[
            "USD",
            "USD/piece",
            "GB-Mo",
            "IOPS-Mo",
            "1/Hour",
            "GiBy.mo",
            ".tier2",
            "2026-01",
            "1e-300",
            "-1",
            "\"\"",
            ",",
            "\n",
            "{}",
        ],
        ..BINARY
    },
    Target { name: "profile", run: plan::fuzzing::profile, seeds: seeds::PROFILES, extensions: &["tprof"], ..BINARY },
    Target { name: "volume_superblock", run: volume::fuzzing::superblock, seeds: seeds::SUPERBLOCKS, ..BINARY },
    Target { name: "volume_record", run: volume::fuzzing::record, seeds: seeds::VOLUME_RECORDS, ..BINARY },
    Target { name: "volume_sectors", run: volume::fuzzing::sectors, seeds: seeds::SECTORS, ..BINARY },
];

/// Of documents and tokens of a provider of logins.
const PROVIDER_WORDS: &[&str] = &[
    "\"kty\": \"EC\"",
    "\"kty\": \"RSA\"",
    "\"crv\": \"P-256\"",
    "\"sub\": \"1\"",
    "\"exp\": 1e300",
    "\"iat\": -1",
    "\"aud\": []",
    "http://",
    "https://",
    "[::1]",
    ":443",
    ".",
    "eyJhbGciOiJFUzI1NiJ9",
    "eyJhbGciOiJub25lIn0",
];

/// Words of NBD: magics as text, numbers of options, answers and chunks at their places.
const NBD_WORDS: &[&str] = &[
    "NBDMAGIC",
    "IHAVEOPT",
    "\0\0\0\u{1}",
    "\0\0\0\u{3}",
    "\0\0\0\u{7}",
    "\0\0\0\u{8}",
    "\0\0\0\u{a}",
    "\0\0\0\0\0\0\0\u{1}",
    "\0\0\u{10}\0",
    "\0\u{1}",
    "\0\u{5}",
    "base:allocation",
    "terrace:epoch",
];

/// Words of PostgreSQL's protocol: heads of messages, counts and lengths at their bounds, SCRAM.
const WIRE_WORDS: &[&str] = &[
    "\0\0\0\u{8}\u{4}",
    "\0\u{3}\0\0",
    "user\0",
    "_pq_.x\0",
    "Q\0\0\0",
    "P\0\0\0",
    "B\0\0\0",
    "D\0\0\0",
    "E\0\0\0",
    "C\0\0\0",
    "S\0\0\0\u{4}",
    "H\0\0\0\u{4}",
    "d\0\0\0\u{4}",
    "c\0\0\0\u{4}",
    "f\0\0\0\u{6}",
    "p\0\0\0\u{8}",
    "X\0\0\0\u{4}",
    "\0",
    "\0\0",
    "\0\u{1}",
    "\u{7f}",
    "\0\0\0\0",
    "SCRAM-SHA-256\0",
    "SCRAM-SHA-256$4096:",
    "n,,n=,r=",
    "c=biws,r=",
    ",p=",
    "AAAA",
];

/// Words of values as text.
const VALUE_WORDS: &[&str] = &[
    "0",
    "9",
    "99999",
    "-",
    "+",
    ".",
    "e",
    "e400",
    "NaN",
    "Infinity",
    "inf",
    "t",
    "off",
    "\\x",
    "ff",
    "\\",
    "\\134",
    " ",
    ":",
    "2024-02-29",
    "0001-01-01",
    "5874897-12-31",
    " BC",
    "23:59:60",
    "24:00:00",
    ".999999",
    ".9999995",
    "T",
    "Z",
    "+16",
    "-00:30",
    "year",
    "mons",
    "week",
    "days",
    "ago",
    "ms",
    "us",
    "1 day ",
    "\0",
    "\u{e9}",
];

/// Words of COPY's formats.
const COPY_WORDS: &[&str] = &[
    "\t",
    ",",
    "\n",
    "\r\n",
    "\r",
    "\"",
    "\"\"",
    "\\",
    "\\.",
    "\\N",
    "\\x4",
    "\\01",
    "\0\u{2}",
    "\0\0\0\u{1}",
    "PGCOPY\n",
    "\u{e9}",
];

/// Words of replies of SMTP and HTTP.
const REPLY_WORDS: &[&str] =
    &["\r\n", "\n", "250-", "250 ", "220", "HTTP/1.1 ", "204", "100 Continue\r\n\r\n", "\u{e9}"];

/// The common part of targets that read stored bytes.
const BINARY: Target = Target {
    name: "",
    run: |_| {},
    seeds: &[],
    extensions: &[],
    before: b"",
    words: &["\0", "\0\0\0\0", "\u{1}", "\u{10}\0", "\u{7f}"],
};

/// The common part of targets that read messages.
const HL7_FILES: Target =
    Target { name: "", run: |_| {}, seeds: &[], extensions: &["hl7"], before: b"", words: HL7_WORDS };

/// A target with a planted fault: a doubled delimiter in a message that still starts as one. It proves that the fuzzer
/// finds faults, and is only run when named.
pub const CANARY: Target = Target {
    name: "canary",
    run: |input| assert!(!has_planted_fault(input), "the planted fault was found"),
    seeds: &[b"MSH|a|b\r", b"PID|c\r"],
    extensions: &[],
    before: b"",
    words: &["|", "^"],
};

/// The canary with a fault that cannot be caught in the process; only run when named.
pub const CANARY_ABORT: Target = Target {
    name: "canary-abort",
    run: |input| {
        if has_planted_fault(input) {
            std::process::abort();
        }
    },
    ..CANARY
};

fn has_planted_fault(input: &[u8]) -> bool {
    input.starts_with(b"MSH") && input.windows(2).any(|pair| pair == b"||")
}

/// The target called `name`.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().chain([&CANARY, &CANARY_ABORT]).find(|target| target.name == name)
}

/// Tries one input on the target called `name`; the coverage-guided wrappers call it.
///
/// # Panics
///
/// If there is no such target, and if the input breaks a promise of the code under test.
pub fn try_one(name: &str, input: &[u8]) {
    let target = find(name).unwrap_or_else(|| panic!("there is no target {name}"));
    (target.run)(input);
}
