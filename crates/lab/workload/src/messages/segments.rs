//! The segments of the generated messages, each written as a sender of its version would.
//!
//! `Writer` encodes text in the message's charset as it goes; a name outside ASCII is chosen only if the charset can hold it.

use std::ops::Range;

use super::words::{FAMILY, FAMILY_ACCENTED, GIVEN, GIVEN_ACCENTED, REMARKS, SENDERS, TESTS, TOWN};
use super::{Charset, Kind, control_id};

const VERSIONS: [&str; 5] = ["2.3", "2.3.1", "2.4", "2.5", "2.5.1"];

/// Writes one message.
pub(super) struct Writer<'r> {
    rng: &'r mut fastrand::Rng,
    charset: Charset,
    out: Vec<u8>,
}

impl<'r> Writer<'r> {
    pub(super) fn new(rng: &'r mut fastrand::Rng, charset: Charset) -> Self {
        Writer { rng, charset, out: Vec::with_capacity(2048) }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// MSH; returns where MSH-10 is.
    pub(super) fn header(&mut self, kind: Kind) -> Range<usize> {
        let (application, facility) = self.pick(&SENDERS);
        let version = self.pick(&VERSIONS);
        let stamp = self.moment();
        let blank = control_id::BLANK;
        let label = self.charset.label();
        let kind = kind.message_type();
        let before = format!("MSH|^~\\&|{application}|{facility}|TERRACE|HUB|{stamp}||{kind}|");
        let after = format!("{blank}|P|{version}||||||{label}");
        let start = before.len();
        self.segment(&(before + after.trim_end_matches('|')));
        start..start + control_id::BYTES
    }

    /// ADT: event, demographics, next of kin, visit, allergies, diagnoses, insurance.
    pub(super) fn admission(&mut self, kind: Kind) {
        let stamp = self.moment();
        let event = &kind.message_type()[4..7];
        let operator = self.rng.u32(0..1000);
        self.segment(&format!("EVN|{event}|{stamp}|||OPER{operator:03}^CLERK^TEST"));
        self.patient();
        self.segment("PD1||||1234^GENERAL^PRACTICE^^^DR|||||||N");
        for set in 1..=self.rng.u32(0..3) {
            let (name, address, phone) = (self.name(), self.address(), self.phone());
            self.segment(&format!("NK1|{set}|{name}|SPO^Spouse^HL70063|{address}|{phone}||EC^Emergency contact"));
        }
        self.visit();
        self.segment("PV2|||R07.9^CHEST PAIN, UNSPECIFIED^I10||||||||2|||||||||||||N");
        for set in 1..=self.rng.u32(0..4) {
            let stamp = self.day();
            self.segment(&format!(
                "AL1|{set}|DA^Drug allergy|PENI{set}^PENICILLIN G \\T\\ related^L|MO|RASH~ITCHING|{stamp}"
            ));
        }
        for set in 1..=self.rng.u32(1..4) {
            let stamp = self.moment();
            self.segment(&format!(
                "DG1|{set}||E11.{set}^Type 2 diabetes mellitus, example {set}^I10|example text|{stamp}|W"
            ));
        }
        let (name, address, phone) = (self.name(), self.address(), self.phone());
        self.segment(&format!("GT1|1||{name}||{address}|{phone}||19510203|F||SLF^Self"));
        for set in 1..=self.rng.u32(0..3) {
            let (name, address, day) = (self.name(), self.address(), self.day());
            let policy = self.rng.u32(100_000..999_999);
            self.segment(&format!(
                "IN1|{set}|PLAN{set}^Example plan {set}|INS00{set}|EXAMPLE MUTUAL|{address}|||GRP{policy}|||{day}|||HMO|{name}|18^Self|19510203|{address}|||||||||||||||||POL{policy}"
            ));
        }
        self.local_segment();
    }

    /// ORU: one or more orders, each with results; the number of results is log-normal.
    pub(super) fn results(&mut self) {
        self.patient();
        self.visit();
        let total = self.log_normal(9.0, 1.15).clamp(1, 300);
        let mut left = total;
        let mut set = 1;
        while left > 0 {
            let here = left.min(self.rng.usize(6..25));
            self.order_common("RE");
            self.observation_request(set);
            for number in 1..=here {
                self.observation(number);
            }
            if self.rng.u32(0..3) == 0 {
                let remark = self.pick(&REMARKS);
                self.segment(&format!("NTE|1|L|{remark}"));
            }
            left -= here;
            set += 1;
        }
        self.local_segment();
    }

    /// ORM: a new order of one to four tests with a diagnosis each.
    pub(super) fn order(&mut self) {
        self.patient();
        self.visit();
        for set in 1..=self.rng.usize(1..5) {
            self.order_common("NW");
            self.observation_request(set);
            let remark = self.pick(&REMARKS);
            self.segment(&format!("NTE|1|P|{remark}"));
            self.segment(&format!("DG1|{set}||R53.8^Other malaise and fatigue, example^I10|||W"));
        }
        self.local_segment();
    }

    /// SIU: an appointment with its resources.
    pub(super) fn appointment(&mut self) {
        let id = self.rng.u32(1_000_000..9_999_999);
        let (begin, name, phone) = (self.moment(), self.name(), self.phone());
        self.segment(&format!(
            "SCH|{id}^BOOKING|F{id}^BOOKING|||{id}|CHECKUP^Routine check|FOLLOWUP^Follow-up visit|NORMAL|30|MIN^Minutes|^^30^{begin}|||||9876^{name}|{phone}|1 TEST STREET|||9876^CLERK^EXAMPLE|||||BOOKED"
        ));
        let remark = self.pick(&REMARKS);
        self.segment(&format!("NTE|1||{remark}"));
        self.patient();
        self.visit();
        self.segment("RGS|1|A");
        self.segment(&format!("AIS|1|A|OFFICE15^15 minute office visit|{begin}|||30|min^Minutes||BOOKED"));
        for set in 1..=self.rng.u32(1..4) {
            self.segment(&format!(
                "AIG|{set}|A|EQ{set}^Example equipment {set}|D^^HL70182||||{begin}|||30|min^Minutes||BOOKED"
            ));
        }
        self.segment(&format!("AIL|1|A|OUTP^ROOM 7^^TERRACE HOSPITAL|^Main building|{begin}|||30|min^Minutes||BOOKED"));
        self.segment(&format!("AIP|1|A|1234^GENERAL^PRACTICE^^^DR|002^Consultant|{begin}|||30|min^Minutes||BOOKED"));
        self.local_segment();
    }

    fn patient(&mut self) {
        let number = self.rng.u32(100_000..10_000_000);
        let (name, mother, address) = (self.name(), self.name(), self.address());
        let (day, home, work) = (self.day(), self.phone(), self.phone());
        let sex = self.pick(&["F", "M", "U", "O"]);
        // `""` deletes the stored value at the receiver: it must survive the way unchanged.
        let account = if self.rng.u32(0..12) == 0 { "\"\"".to_owned() } else { format!("AC{number:08}^^^TERRACE") };
        let national = self.rng.u32(0..1_000_000_000);
        let marital = self.pick(&["S", "M", "D", "W", "\"\"", ""]);
        self.segment(&format!(
            "PID|1|EX{number}|{number:08}^^^TERRACE^MR~{national:09}^^^NATIONAL^NI||{name}|{mother}|{day}|{sex}||2106-3^White^HL70005|{address}||{home}|{work}|en^English|{marital}|NON^None|{account}|||||||||\"\""
        ));
    }

    fn visit(&mut self) {
        let class = self.pick(&["I", "O", "E", "P"]);
        let (ward, room, bed) = (self.rng.u32(1..20), self.rng.u32(100..400), self.rng.u32(1..5));
        let (attending, referring) = (self.name(), self.name());
        let number = self.rng.u32(1_000_000..9_999_999);
        let stamp = self.moment();
        self.segment(&format!(
            "PV1|1|{class}|W{ward:02}^{room}^{bed}^TERRACE||||1234^{attending}^^^DR|5678^{referring}^^^DR||MED||||1|A0||1234^{attending}|SELF|V{number}^^^TERRACE^VN|||||||||||||||||||||||||{stamp}"
        ));
    }

    fn order_common(&mut self, control: &str) {
        let number = self.rng.u32(1_000_000..9_999_999);
        let (stamp, orderer) = (self.moment(), self.name());
        self.segment(&format!(
            "ORC|{control}|P{number}^ORDERS|F{number}^LABSYS||CM||1^once^^{stamp}||{stamp}|||1234^{orderer}"
        ));
    }

    fn observation_request(&mut self, set: usize) {
        let number = self.rng.u32(1_000_000..9_999_999);
        let (code, name, _, _) = self.pick(&TESTS);
        let (stamp, orderer) = (self.moment(), self.name());
        self.segment(&format!(
            "OBR|{set}|P{number}^ORDERS|F{number}^LABSYS|{code}PAN^{name} panel^L|||{stamp}||||L|||{stamp}|BLD^Blood|1234^{orderer}||||||{stamp}||LAB|F||1^once"
        ));
    }

    fn observation(&mut self, set: usize) {
        let (code, name, unit, range) = self.pick(&TESTS);
        let stamp = self.moment();
        if self.rng.u32(0..8) == 0 {
            let remark = self.pick(&REMARKS);
            self.segment(&format!(
                "OBX|{set}|TX|{code}C^{name} comment^L|1|{remark}||||||F|||{stamp}|LAB1^Central laboratory"
            ));
        } else {
            let value = f64::from(self.rng.u32(1..20_000)) / 100.0;
            let flag = self.pick(&["N", "N", "N", "H", "L", "HH"]);
            let catalogue = self.rng.u32(1000..99_999);
            self.segment(&format!(
                "OBX|{set}|NM|{code}^{name}^L^{catalogue}^{name} in blood^LN|1|{value:.2}|{unit}|{range}|{flag}|||F|||{stamp}|LAB1^Central laboratory|TECH7^EXAMPLE"
            ));
        }
    }

    /// A segment of a local standard in one message of four: it is in no schema and must pass unchanged.
    fn local_segment(&mut self) {
        if self.rng.u32(0..4) == 0 {
            let (name, day) = (self.name(), self.day());
            self.segment(&format!("ZPI|1|{name}|{day}|LOCAL^Example extension^L|\"\"||Y"));
        }
    }

    fn name(&mut self) -> String {
        let accented = self.charset != Charset::Ascii && self.rng.u32(0..2) == 0;
        let family = if accented { self.pick(&FAMILY_ACCENTED) } else { self.pick(&FAMILY) };
        let given = if accented { self.pick(&GIVEN_ACCENTED) } else { self.pick(&GIVEN) };
        format!("{family}^{given}")
    }

    fn address(&mut self) -> String {
        let (number, town) = (self.rng.u32(1..400), self.pick(&TOWN));
        format!("{number} TEST STREET^^{town}^XX^{:05}^XZZ^H", self.rng.u32(0..100_000))
    }

    fn phone(&mut self) -> String {
        format!("(555)555-01{:02}", self.rng.u32(0..100))
    }

    fn day(&mut self) -> String {
        format!("{}{:02}{:02}", self.rng.u32(1930..2026), self.rng.u32(1..13), self.rng.u32(1..29))
    }

    fn moment(&mut self) -> String {
        let (hour, minute, second) = (self.rng.u32(0..24), self.rng.u32(0..60), self.rng.u32(0..60));
        format!("2026{:02}{:02}{hour:02}{minute:02}{second:02}", self.rng.u32(1..13), self.rng.u32(1..29))
    }

    /// A whole number whose logarithm is normal around `median` (Box and Muller's transform of two uniform numbers).
    fn log_normal(&mut self, median: f64, sigma: f64) -> usize {
        let (u, v) = (1.0 - self.rng.f64(), self.rng.f64());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (median * (sigma * normal).exp()).round() as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(0..from.len())]
    }

    fn segment(&mut self, text: &str) {
        match self.charset {
            Charset::Ascii | Charset::Utf8 => self.out.extend_from_slice(text.as_bytes()),
            Charset::Latin1 => self.out.extend(
                text.chars().map(|letter| u8::try_from(u32::from(letter)).expect("the words are within ISO-8859-1")),
            ),
        }
        self.out.push(b'\r');
    }
}
