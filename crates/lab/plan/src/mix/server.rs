//! The server that is planned: described in a file of TOML, or as `terrace tier list --json` has printed it.
//!
//! ```text
//!   name = "2 sockets"            dimm_slots, channels    of each socket
//!   sockets = 2                   lanes, bays, cores      of the whole machine
//!   cores = 64                    dimms                   sizes of modules that can be bought
//!   have = ["8x16GiB", "2 x nvme-p4510"]                  what is in it: DRAM by its size, all else by its name in the catalogue
//! ```
//!
//! Invariants: nothing is guessed. What a listing of a machine does not say (lanes, bays, free slots) is 0, and then nothing can be added there.

use catalogue::price::USD_MOST;
use catalogue::provision::Machine;
use catalogue::provision::geometry::{GIB, parse_bytes, print_bytes};
use serde::Deserialize;

use super::report::{PartReport, ServerReport};
use super::supply::{CARD_LANES, Plug};
use crate::PlanError;

/// Memory that is not for the page cache, at least, bytes.
const RESERVE_LEAST: u64 = 2 * GIB;
/// The part of DRAM that is not for the page cache, as a divisor.
const RESERVE_PART: u64 = 8;
/// Modules, cards, drives and processors at most: of each of them.
const MOST: u32 = 4096;
/// The largest module or memory, bytes.
const BYTES_MAX: u64 = 16 << 40;
/// Entries of a list at most.
const LIST_MAX: usize = 64;

/// The server, as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its name, for people.
    #[serde(default = "unnamed")]
    pub name: String,
    /// Sockets.
    pub sockets: u32,
    /// Processors of the machine.
    pub cores: u32,
    /// Slots for modules of memory, of each socket.
    #[serde(default)]
    pub dimm_slots: u32,
    /// Channels of memory, of each socket.
    #[serde(default)]
    pub channels: u32,
    /// Lanes of PCIe for cards, of the machine.
    #[serde(default)]
    pub lanes: u32,
    /// Bays for drives, of the machine.
    #[serde(default)]
    pub bays: u32,
    /// Whether volumes of a network or a cloud can be attached. Default no.
    #[serde(default)]
    pub volumes: bool,
    /// Memory that the processors of a socket can map. Default: not known, and not checked.
    #[serde(default)]
    memory_limit: Option<String>,
    /// Its DRAM in the catalogue.
    #[serde(default = "ddr5")]
    pub dram: String,
    /// DRAM of the catalogue whose times are taken. Default: its own.
    #[serde(default)]
    pub dram_times: Option<String>,
    /// Sizes of modules of DRAM.
    #[serde(default)]
    dimms: Vec<String>,
    /// Memory that is not for the page cache. Default: an eighth of DRAM, at least 2 GiB.
    #[serde(default)]
    reserve: Option<String>,
    /// What is in it.
    #[serde(default)]
    pub have: Vec<String>,
    /// Media that can be bought. Default: all of the catalogue that fit.
    #[serde(default)]
    pub offer: Option<Vec<String>>,
    /// Machines of a cloud that are rented as a whole, in place of DRAM that is bought.
    #[serde(default)]
    pub instance: Vec<Instance>,
    /// It is what `terrace tier list` has found: slots with persistent modules are not among its slots.
    #[serde(skip)]
    is_listing: bool,
    /// Persistent modules and cards of CXL that a listing has found, without their names.
    #[serde(skip)]
    found: (u32, u32),
}

fn unnamed() -> String {
    "server".into()
}

fn ddr5() -> String {
    "ddr5".into()
}

/// A machine of a cloud.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Processors.
    pub cores: u32,
    /// Memory.
    memory: String,
    /// US dollars a month. Default: no price is known.
    #[serde(default)]
    pub usd_per_month: Option<f64>,
}

impl Instance {
    /// Its memory, bytes.
    ///
    /// # Errors
    /// It is no size.
    pub fn memory_bytes(&self) -> Result<u64, PlanError> {
        size("memory", &self.memory)
    }
}

/// So many of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// How many.
    pub count: u32,
    /// What.
    pub what: OwnedKind,
}

/// What is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedKind {
    /// Modules of the server's DRAM, of so many bytes each.
    Dram(u64),
    /// A medium of the catalogue.
    Medium(String),
}

fn refuse<T>(what: String) -> Result<T, PlanError> {
    Err(PlanError::Refused(what))
}

fn size(key: &str, text: &str) -> Result<u64, PlanError> {
    let bytes = parse_bytes(text).filter(|bytes| (1..=BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| PlanError::Refused(format!("{key} = \"{text}\" is no size up to 16TiB: write it as 64GiB")))
}

/// Reads `8x16GiB`, `2 x nvme-p4510`, `nvme-p4510`.
///
/// # Errors
/// What is neither.
pub fn parse_owned(text: &str) -> Result<Owned, PlanError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let (count, what) = match rest.trim_start().strip_prefix('x') {
        Some(what) if digits > 0 => (number.parse::<u32>().unwrap_or(0), what.trim()),
        _ => (1, text),
    };
    if !(1..=MOST).contains(&count) || what.is_empty() {
        return refuse(format!("`{text}` is nothing that one has: write it as 8x16GiB or 2xnvme-p4510"));
    }
    // DRAM may be followed by its name, as "24x32GiB-ddr4".
    let what =
        match parse_bytes(what.split('-').next().unwrap_or(what)).filter(|bytes| (GIB..=BYTES_MAX).contains(bytes)) {
            Some(bytes) => OwnedKind::Dram(bytes),
            None => OwnedKind::Medium(what.to_owned()),
        };
    Ok(Owned { count, what })
}

impl Server {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is not of the form, and what is impossible, with the key.
    pub fn parse(text: &str) -> Result<Server, PlanError> {
        let server: Server = toml::from_str(text).map_err(|error| {
            PlanError::Refused(format!("the server's description: {}", error.to_string().trim_end()))
        })?;
        server.check()?;
        Ok(server)
    }

    /// A machine as `terrace tier list --json` prints it: what is in it is owned, and only free slots of memory can be filled.
    ///
    /// # Errors
    /// It is no such listing, or has no memory.
    pub fn of_listing(text: &str) -> Result<Server, PlanError> {
        let machine: Machine = serde_json::from_str(text)
            .map_err(|error| PlanError::Refused(format!("this is no output of terrace tier list --json: {error}")))?;
        let with_cpus: Vec<_> = machine.nodes.iter().filter(|node| !node.cpus.is_empty()).collect();
        let cores: u32 = with_cpus.iter().map(|node| cpus(&node.cpus)).sum();
        let seen: u64 = with_cpus.iter().map(|node| node.bytes).sum();
        let dram = machine.dram_bytes.unwrap_or(seen);
        if cores == 0 || dram == 0 {
            return refuse("the listing has no node with processors and memory".into());
        }
        let sockets = with_cpus.len() as u32;
        // Without a table of slots all of it is one piece, to which nothing can be added.
        let slots = machine.slots.filter(|slots| slots.dram > 0);
        let modules = slots.map_or(1, |slots| slots.dram);
        let one = (dram / u64::from(modules)).div_ceil(GIB) * GIB;
        let server = Server {
            name: "this machine".into(),
            sockets,
            cores,
            dimm_slots: slots
                .map_or(modules, |slots| slots.all.saturating_sub(slots.persistent).max(slots.dram))
                .div_ceil(sockets),
            channels: modules.div_ceil(sockets),
            lanes: 0,
            bays: 0,
            volumes: false,
            memory_limit: machine.socket_limit_bytes.map(|bytes| bytes.to_string()),
            dram: ddr5(),
            dram_times: None,
            dimms: vec![one.to_string()],
            reserve: None,
            have: vec![format!("{modules} x {}", print_bytes(one))],
            offer: None,
            instance: Vec::new(),
            is_listing: true,
            found: (slots.map_or(machine.modules.len() as u32, |slots| slots.persistent), machine.cxl.len() as u32),
        };
        server.check()?;
        Ok(server)
    }

    /// What a listing has found and not named: its kind, how many, and how one would be named.
    pub fn found(&self) -> [(&'static str, u32, &'static str); 2] {
        [("pmem", self.found.0, "dcpmm100-128g"), ("cxl", self.found.1, "cxl-expander")]
    }

    fn check(&self) -> Result<(), PlanError> {
        let numbers = [
            ("sockets", self.sockets, 1),
            ("cores", self.cores, 1),
            ("dimm_slots", self.dimm_slots, 0),
            ("channels", self.channels, 0),
            ("lanes", self.lanes, 0),
            ("bays", self.bays, 0),
        ];
        for (key, value, least) in numbers {
            if !(least..=MOST).contains(&value) {
                return refuse(format!("{key} = {value}: it is {least} to {MOST}"));
            }
        }
        if self.instance.is_empty() && (self.dimm_slots == 0 || self.channels == 0) {
            return refuse("dimm_slots and channels of a socket are needed, or an [[instance]]".into());
        }
        if self.dimm_slots > 64 || self.channels > 64 {
            return refuse("dimm_slots and channels are those of one socket: at most 64".into());
        }
        if [self.have.len(), self.dimms.len(), self.instance.len()].iter().any(|many| *many > LIST_MAX) {
            return refuse(format!("have, dimms and [[instance]] have {LIST_MAX} entries at most"));
        }
        let is_printable =
            |name: &str| (1..=64).contains(&name.len()) && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let mut names = self.instance.iter().map(|instance| instance.name.as_str()).chain([self.name.as_str()]);
        if !names.all(is_printable) {
            return refuse("names have 1 to 64 printable characters".into());
        }
        for instance in &self.instance {
            instance.memory_bytes()?;
            let is_price = instance.usd_per_month.is_none_or(|usd| (0.0..USD_MOST).contains(&usd));
            if !is_price || !(1..=MOST).contains(&instance.cores) {
                return refuse(format!(
                    "instance {}: a price is 0 or more, below {USD_MOST:e}, and it has processors",
                    instance.name
                ));
            }
        }
        self.memory_limit()?;
        self.reserve_of(0)?;
        self.dimm_bytes()?;
        self.owned().map(|_| ())
    }

    /// Sizes of modules of DRAM, bytes, by size; those that are owned are among them.
    ///
    /// # Errors
    /// What is no size.
    pub fn dimm_bytes(&self) -> Result<Vec<u64>, PlanError> {
        const USUAL: [u64; 5] = [16 * GIB, 32 * GIB, 64 * GIB, 96 * GIB, 128 * GIB];
        let mut sizes = match self.dimms.as_slice() {
            [] => USUAL.to_vec(),
            given => given.iter().map(|text| size("dimms", text)).collect::<Result<_, _>>()?,
        };
        for owned in self.owned()? {
            if let OwnedKind::Dram(bytes) = owned.what {
                sizes.push(bytes);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    /// What is in it.
    ///
    /// # Errors
    /// What is nothing that one has.
    pub fn owned(&self) -> Result<Vec<Owned>, PlanError> {
        self.have.iter().map(|text| parse_owned(text)).collect()
    }

    /// Whether what is in it can be: modules in slots, cards on lanes, drives in bays, as far as these are described.
    ///
    /// # Errors
    /// What is more than there is room for, with the key.
    pub fn check_owned(&self, plug_of: impl Fn(&str) -> Option<Plug>) -> Result<(), PlanError> {
        let (mut modules, mut lanes, mut drives) = (0u64, 0u64, 0u64);
        for owned in self.owned()? {
            let count = u64::from(owned.count);
            match owned.what {
                OwnedKind::Dram(_) => modules += count,
                OwnedKind::Medium(name) => match plug_of(&name) {
                    Some(Plug::Dimm) if !self.is_listing => modules += count,
                    Some(Plug::Lanes) => lanes += count * u64::from(CARD_LANES),
                    Some(Plug::Bay) => drives += count,
                    _ => {}
                },
            }
        }
        let slots = u64::from(self.dimm_slots) * u64::from(self.sockets);
        for (what, has, key, room) in [
            ("modules", modules, "dimm_slots", slots),
            ("lanes of cards", lanes, "lanes", u64::from(self.lanes)),
            ("drives", drives, "bays", u64::from(self.bays)),
        ] {
            // What is 0 is not described.
            if room > 0 && has > room {
                return refuse(format!("what one has: {has} {what}, but {key} are {room} in all"));
            }
        }
        Ok(())
    }

    /// Memory that the processors of a socket map at most, bytes.
    ///
    /// # Errors
    /// It is no size.
    pub fn memory_limit(&self) -> Result<Option<u64>, PlanError> {
        self.memory_limit.as_ref().map(|text| size("memory_limit", text)).transpose()
    }

    /// Of so much DRAM, what is not for the page cache, bytes.
    ///
    /// # Errors
    /// It is no size.
    pub fn reserve_of(&self, dram: u64) -> Result<u64, PlanError> {
        match &self.reserve {
            Some(text) => size("reserve", text),
            None => Ok((dram / RESERVE_PART).max(RESERVE_LEAST)),
        }
    }

    /// It as a part of the report.
    pub fn report(&self, has: Vec<PartReport>) -> ServerReport {
        let slots = self.dimm_slots * self.sockets;
        let (name, sockets, cores) = (self.name.clone(), self.sockets, self.cores);
        ServerReport { name, sockets, cores, dimm_slots: slots, lanes: self.lanes, bays: self.bays, has }
    }
}

/// How many processors a list of Linux names: `0-23,48`.
fn cpus(list: &str) -> u32 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.trim().parse::<u32>().ok().zip(last.trim().parse::<u32>().ok());
        ends.map_or(0, |(first, last)| last.saturating_sub(first).min(MOST) + 1)
    };
    list.split(',').filter(|part| !part.trim().is_empty()).map(part).fold(0, u32::saturating_add).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'two'\nsockets = 2\ncores = 64\ndimm_slots = 16\nchannels = 8\nlanes = 64\nbays = 8\n\
                        have = ['8x16GiB', '2 x nvme-p4510']\n";

    #[test]
    fn a_server_is_read_and_what_is_impossible_is_refused_with_its_key() {
        let server = Server::parse(TEXT).expect("a server");
        assert_eq!((server.sockets, server.dram.as_str(), server.volumes), (2, "ddr5", false));
        let owned = |count: u32, what: OwnedKind| Owned { count, what };
        let wanted = [owned(8, OwnedKind::Dram(16 * GIB)), owned(2, OwnedKind::Medium("nvme-p4510".into()))];
        assert_eq!(server.owned().expect("owned"), wanted);
        assert_eq!(server.reserve_of(64 * GIB).expect("a size"), 8 * GIB);
        assert_eq!(server.reserve_of(8 * GIB).expect("a size"), 2 * GIB);
        for (text, says) in [
            (TEXT.replace("sockets = 2", "sockets = 0"), "sockets = 0"),
            (TEXT.replace("channels = 8", ""), "dimm_slots and channels"),
            (TEXT.replace("bays = 8", "bays = 9999"), "bays = 9999"),
            (format!("{TEXT}dimms = ['x']"), "dimms"),
            (format!("{TEXT}reserve = '0'"), "reserve"),
            (format!("{TEXT}tape = 1"), "unknown field `tape`"),
            (TEXT.replace("8x16GiB", "0x16GiB"), "nothing that one has"),
            (TEXT.replace("'two'", "'a\\nb'").replace("'a", "\"a").replace("b'\n", "b\"\n"), "printable"),
            (format!("{TEXT}[[instance]]\nname = 'm'\ncores = 0\nmemory = '8GiB'"), "instance m"),
            (
                format!("{TEXT}[[instance]]\nname = 'm'\ncores = 1\nmemory = '8GiB'\nusd_per_month = 1e308"),
                "instance m: a price is 0 or more",
            ),
        ] {
            let error = Server::parse(&text).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_one_has_is_read_as_people_write_it() {
        for (text, count, what) in [
            ("24x32GiB-ddr4", 24, OwnedKind::Dram(32 * GIB)),
            ("nvme-p4510", 1, OwnedKind::Medium("nvme-p4510".into())),
            (" 2 x cxl-expander", 2, OwnedKind::Medium("cxl-expander".into())),
        ] {
            assert_eq!(parse_owned(text).expect(text), Owned { count, what }, "{text}");
        }
        assert!(parse_owned("").is_err() && parse_owned("0xddr5").is_err() && parse_owned("99999x1GiB").is_err());
    }

    #[test]
    fn a_listing_gives_what_is_there_and_nothing_that_it_does_not_say() {
        let text = r#"{"nodes": [{"id": 0, "cpus": "0-3,8-11", "bytes": 68719476736, "free_bytes": 0, "distances": []}],
                       "slots": {"all": 8, "dram": 4, "persistent": 0}, "waiting": null}"#;
        let server = Server::of_listing(text).expect("a machine");
        assert_eq!((server.sockets, server.cores, server.dimm_slots, server.channels), (1, 8, 8, 4));
        assert_eq!((server.lanes, server.bays), (0, 0));
        assert_eq!(server.owned().expect("owned"), [Owned { count: 4, what: OwnedKind::Dram(16 * GIB) }]);
        assert!(server.check_owned(|_| None).is_ok());
        let more = Server { have: vec!["9x16GiB".into()], ..server };
        assert!(more.check_owned(|_| None).expect_err("nine in eight").to_string().contains("9 modules"));
        assert!(Server::of_listing("{}").is_err() && Server::of_listing("x").is_err());
        assert_eq!(cpus("0-4294967295"), MOST);
    }
}
