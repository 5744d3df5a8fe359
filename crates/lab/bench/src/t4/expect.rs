//! What each interface should receive for an inbound message: the four transforms of the workload once more, in plain code.
//!
//! This is the referee, so it shares nothing with the engine: it splits at CR and `|`, and joins again. It knows only
//! messages such as `messages` makes (delimiters `|^~\&`, segments ended by CR).

/// The outbound interfaces, in the order of the load's receivers.
pub const INTERFACES: [&str; 4] = ["billing", "laboratory", "pharmacy", "registry"];

/// What interface number `interface` (of `INTERFACES`) should receive for `inbound`.
///
/// # Panics
/// If there is no such interface.
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
    message.set("PID", 19, b"");
    message.set("PV1", 20, b"SELF");
}

fn laboratory(message: &mut Message<'_>) {
    message.set("MSH", 5, b"LABORATORY");
}

fn pharmacy(message: &mut Message<'_>) {
    message.set("MSH", 5, b"PHARMACY");
}

fn registry(message: &mut Message<'_>) {
    message.set("MSH", 5, b"REGISTRY");
}

/// A message as lines of fields. Field n of a line is piece n, and of MSH piece n - 1.
struct Message<'a> {
    lines: Vec<Vec<std::borrow::Cow<'a, [u8]>>>,
}

impl<'a> Message<'a> {
    fn split(raw: &'a [u8]) -> Self {
        let body = raw.strip_suffix(b"\r").expect("generated messages end in CR");
        let line = |line: &'a [u8]| line.split(|byte| *byte == b'|').map(Into::into).collect();
        Message { lines: body.split(|byte| *byte == b'\r').map(line).collect() }
    }

    fn set(&mut self, segment: &str, field: usize, value: &[u8]) {
        let at = if segment == "MSH" { field - 1 } else { field };
        for line in self.lines.iter_mut().filter(|line| *line[0] == *segment.as_bytes()).take(1) {
            if line.len() <= at {
                line.resize(at + 1, [].as_slice().into());
            }
            line[at] = value.to_vec().into();
        }
    }

    fn join(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.join(&b'|').into_iter().chain([b'\r'])).collect()
    }
}
