//! A seeded generator of HL7 v2 messages of realistic size.
//!
//! ```text
//! seed -> Generator -> Sample { bytes: "MSH|^~\&|...|T4-000-0000000|...\r" "PID|..." ..., control_id: 61..75 }
//!                                                    ^ MSH-10, fixed width, patched before each send
//! ```
//!
//! Shape of the set, after the corpus statistics the project works from (1,065 collected test messages: median
//! 1,547 bytes, 95th percentile 9,989 bytes, results messages the largest group): half observation results whose number
//! of OBX segments is log-normal, the rest admissions, orders and appointments of one to two kilobytes.
//!
//! Invariants: the same seed gives the same bytes; segments end in CR; every message has MSH, PID and PV1 and one
//! segment that names what is ordered or booked (`subject`); MSH-10 is `control_id::BYTES` long; MSH-15 and MSH-16 are empty, so
//! the acknowledgement is the original mode's AA. Accented names appear only where MSH-18 declares the charset.
//!
//! Everything in them is made up: family names are words such as SAMPLE or PLACEHOLDER, telephone numbers are from the
//! 555-01xx range reserved for fiction, and nothing is taken from a collected message.
//!
//! Not done here: invalid messages (hl7's own tests), other delimiters than `|^~\&`, batches.

pub mod control_id;
mod segments;
#[cfg(test)]
mod tests;
mod words;

use std::ops::Range;

use segments::Writer;

/// The type of a message (MSH-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// ADT^A01, admission.
    Admit,
    /// ADT^A04, registration of an outpatient.
    Register,
    /// ADT^A08, update of patient information.
    Update,
    /// ORU^R01, observation results.
    Result,
    /// ORM^O01, order.
    Order,
    /// SIU^S12, new appointment.
    Appointment,
}

impl Kind {
    /// Every kind, in the order of the mix.
    pub const ALL: [Kind; 6] =
        [Kind::Result, Kind::Admit, Kind::Register, Kind::Update, Kind::Order, Kind::Appointment];

    /// MSH-9 as sent: type, event, structure.
    pub fn message_type(self) -> &'static str {
        match self {
            Kind::Admit => "ADT^A01^ADT_A01",
            Kind::Register => "ADT^A04^ADT_A01",
            Kind::Update => "ADT^A08^ADT_A01",
            Kind::Result => "ORU^R01^ORU_R01",
            Kind::Order => "ORM^O01^ORM_O01",
            Kind::Appointment => "SIU^S12^SIU_S12",
        }
    }

    /// Share of the mix in per cent; `ALL` sums to 100. Results lead as in the corpus, where they are even more.
    fn per_cent(self) -> u32 {
        match self {
            Kind::Result => 52,
            Kind::Admit | Kind::Register => 8,
            Kind::Update => 14,
            Kind::Order => 12,
            Kind::Appointment => 6,
        }
    }
}

/// How names outside ASCII are written, and the content of MSH-18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charset {
    /// MSH-18 empty; only ASCII in the message.
    Ascii,
    /// MSH-18 `8859/1`.
    Latin1,
    /// MSH-18 `UNICODE UTF-8`.
    Utf8,
}

impl Charset {
    /// The value of MSH-18.
    pub fn label(self) -> &'static str {
        match self {
            Charset::Ascii => "",
            Charset::Latin1 => "8859/1",
            Charset::Utf8 => "UNICODE UTF-8",
        }
    }
}

/// One generated message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The content of MSH-9.
    pub kind: Kind,
    /// The content of MSH-18.
    pub charset: Charset,
    /// The message, unframed, segments ended by CR.
    pub bytes: Vec<u8>,
    /// Where MSH-10 is in `bytes`; its length is `control_id::BYTES`.
    pub control_id: Range<usize>,
}

/// Makes messages from a seed.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: fastrand::Rng,
}

impl Generator {
    /// A generator; equal seeds give equal messages.
    pub fn new(seed: u64) -> Self {
        Generator { rng: fastrand::Rng::with_seed(seed) }
    }

    /// The next message of the mix.
    pub fn sample(&mut self) -> Sample {
        let mut roll = self.rng.u32(0..100);
        let kind = Kind::ALL.into_iter().find(|kind| match roll.checked_sub(kind.per_cent()) {
            Some(rest) => {
                roll = rest;
                false
            }
            None => true,
        });
        self.sample_of(kind.expect("the shares of the mix sum to 100"))
    }

    /// The next message, of a given kind.
    pub fn sample_of(&mut self, kind: Kind) -> Sample {
        // The corpus declares UTF-8 in about a fifth of its messages; Latin-1 is rarer there than in the field.
        let charset = match self.rng.u32(0..10) {
            0..=5 => Charset::Ascii,
            6..=7 => Charset::Latin1,
            _ => Charset::Utf8,
        };
        let mut writer = Writer::new(&mut self.rng, charset);
        let control_id = writer.header(kind);
        match kind {
            Kind::Admit | Kind::Register | Kind::Update => writer.admission(kind),
            Kind::Result => writer.results(),
            Kind::Order => writer.order(),
            Kind::Appointment => writer.appointment(),
        }
        Sample { kind, charset, bytes: writer.finish(), control_id }
    }
}
