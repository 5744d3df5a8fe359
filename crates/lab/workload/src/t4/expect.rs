//! The messages that each interface should receive for an inbound message: the four transforms of the workload once
//! more, in plain code.
//!
//! | interface | MSH | PID | PV1 | and the first of |
//! |---|---|---|---|---|
//! | billing | 5, 6 by facility | 4 from 18 | 2 by class, 44 to days | DG1-6, OBR-20, SCH-6.2 |
//! | laboratory | 5 | 3 without the national number | 3.1 by ward | OBR-7, EVN-2, SCH-11.4 to minutes |
//! | pharmacy | 5 | 8 by sex | 3.1 by ward, 3.3 padded | AL1-3.3, ORC-2.2, SCH-8, EVN-4 |
//! | registry | 5, 7 to days | 13 and 14 emptied, 7 to years | 7 emptied, 2 by class | EVN-5, OBR-16, SCH-16 emptied |
//!
//! This is the referee, so it shares nothing with the engine: it splits at CR, `|` and `^`, and joins again. It knows
//! only messages such as `messages` makes (delimiters `|^~\&`, segments ended by CR, complete dates).

use std::borrow::Cow;

/// The outbound interfaces, in the order of the load's receivers.
pub const INTERFACES: [&str; 4] = ["billing", "laboratory", "pharmacy", "registry"];

/// The message that interface number `interface` (of `INTERFACES`) should receive for `inbound`.
///
/// # Panics
/// If there is no such interface, or `inbound` is not such as `messages` makes.
pub fn expected(interface: usize, inbound: &[u8]) -> Vec<u8> {
    let mut message = Message::split(inbound);
    match INTERFACES[interface] {
        "billing" => billing(&mut message),
        "laboratory" => laboratory(&mut message),
        "pharmacy" => pharmacy(&mut message),
        _ => registry(&mut message),
    }
    message.join()
}

fn billing(message: &mut Message<'_>) {
    message.set("MSH", 5, b"BILLING");
    message.change("MSH", 4, 6, |facility| match facility {
        b"NORTH" => b"F01".to_vec(),
        b"EAST" => b"F02".to_vec(),
        b"WEST" => b"F03".to_vec(),
        b"CENTRAL LAB" => b"F10".to_vec(),
        b"IMAGING" => b"F11".to_vec(),
        b"OUTPATIENT" => b"F20".to_vec(),
        _ => b"HUB".to_vec(),
    });
    message.change("PID", 18, 4, <[u8]>::to_vec);
    message.change("PV1", 2, 2, patient_class);
    message.change("PV1", 44, 44, |moment| moment[..8].to_vec());
    if message.has("DG1") {
        message.set("DG1", 6, b"F");
    } else if message.has("OBR") {
        message.change("OBR", 4, 20, |code| [b"BILL ", component(code, 1)].concat());
    } else {
        message.change("SCH", 6, 6, |reason| with_component(reason, 2, b"Billable"));
    }
}

fn laboratory(message: &mut Message<'_>) {
    message.set("MSH", 5, b"LABORATORY");
    message.change("PID", 3, 3, |numbers| {
        let kept: Vec<&[u8]> =
            numbers.split(|byte| *byte == b'~').filter(|number| component(number, 5) != b"NI").collect();
        kept.join(&b'~')
    });
    message.change("PV1", 3, 3, ward);
    let to_minutes = |moment: &[u8]| moment[..12].to_vec();
    if message.has("OBR") {
        message.change("OBR", 7, 7, to_minutes);
    } else if message.has("EVN") {
        message.change("EVN", 2, 2, to_minutes);
    } else {
        message.change("SCH", 11, 11, |timing| with_component(timing, 4, &component(timing, 4)[..12]));
    }
}

fn pharmacy(message: &mut Message<'_>) {
    message.set("MSH", 5, b"PHARMACY");
    message.change("PID", 8, 8, |sex| match sex {
        b"F" => b"female".to_vec(),
        b"M" => b"male".to_vec(),
        b"O" => b"other".to_vec(),
        _ => b"unknown".to_vec(),
    });
    message.change("PV1", 3, 3, |place| {
        let place = ward(place);
        let bed = component(&place, 3);
        let padded = [&b"00"[bed.len().min(2)..], bed].concat();
        with_component(&place, 3, &padded)
    });
    if message.has("AL1") {
        message.change("AL1", 3, 3, |allergy| with_component(allergy, 3, b"LOCAL"));
    } else if message.has("ORC") {
        message.change("ORC", 2, 2, |number| with_component(number, 2, b"PHARMACY"));
    } else if message.has("SCH") {
        message.set("SCH", 8, b"PHARM^Pharmacy visit");
    } else {
        message.set("EVN", 4, b"01");
    }
}

fn registry(message: &mut Message<'_>) {
    message.set("MSH", 5, b"REGISTRY");
    message.change("MSH", 7, 7, |moment| moment[..8].to_vec());
    message.set("PID", 13, b"");
    message.set("PID", 14, b"");
    message.change("PID", 7, 7, |day| day[..4].to_vec());
    message.set("PV1", 7, b"");
    message.change("PV1", 2, 2, patient_class);
    if message.has("EVN") {
        message.set("EVN", 5, b"");
    } else if message.has("OBR") {
        message.set("OBR", 16, b"");
    } else {
        message.set("SCH", 16, b"");
    }
}

fn patient_class(code: &[u8]) -> Vec<u8> {
    let name: &[u8] = match code {
        b"I" => b"INPATIENT",
        b"O" => b"OUTPATIENT",
        b"E" => b"EMERGENCY",
        b"P" => b"PREADMIT",
        other => other,
    };
    name.to_vec()
}

/// W01 to W12 have moved to N101 to N112; the other wards keep their names.
fn ward(place: &[u8]) -> Vec<u8> {
    let name = component(place, 1);
    match name.strip_prefix(b"W") {
        Some(number) if (b"01".as_slice()..=b"12").contains(&number) => {
            with_component(place, 1, &[b"N1", number].concat())
        }
        _ => place.to_vec(),
    }
}

/// Component `number` of a field, from 1; nothing if there is none.
fn component(field: &[u8], number: usize) -> &[u8] {
    field.split(|byte| *byte == b'^').nth(number - 1).unwrap_or_default()
}

fn with_component(field: &[u8], number: usize, value: &[u8]) -> Vec<u8> {
    let mut components: Vec<&[u8]> = field.split(|byte| *byte == b'^').collect();
    components[number - 1] = value;
    components.join(&b'^')
}

/// A message as lines of fields. Field n of a line is piece n, and of MSH piece n - 1.
struct Message<'a> {
    lines: Vec<Vec<Cow<'a, [u8]>>>,
}

impl<'a> Message<'a> {
    fn split(raw: &'a [u8]) -> Self {
        let body = raw.strip_suffix(b"\r").expect("generated messages end in CR");
        let line = |line: &'a [u8]| line.split(|byte| *byte == b'|').map(Cow::from).collect();
        Message { lines: body.split(|byte| *byte == b'\r').map(line).collect() }
    }

    /// The first segment of a name.
    fn line(&mut self, segment: &str) -> Option<&mut Vec<Cow<'a, [u8]>>> {
        self.lines.iter_mut().find(|line| *line[0] == *segment.as_bytes())
    }

    fn has(&mut self, segment: &str) -> bool {
        self.line(segment).is_some()
    }

    fn set(&mut self, segment: &str, field: usize, value: &[u8]) {
        self.change(segment, field, field, |_| value.to_vec());
    }

    /// Puts what `how` makes of field `from` into field `to`; a field that is not there reads as empty.
    fn change(&mut self, segment: &str, from: usize, to: usize, how: impl FnOnce(&[u8]) -> Vec<u8>) {
        let shift = usize::from(segment == "MSH");
        let line = self.line(segment).expect("generated messages have the segments that their kind needs");
        let value = how(line.get(from - shift).map_or(&[], |field| field));
        if line.len() <= to - shift {
            line.resize(to - shift + 1, Cow::from(&[]));
        }
        line[to - shift] = value.into();
    }

    fn join(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.join(&b'|').into_iter().chain([b'\r'])).collect()
    }
}
