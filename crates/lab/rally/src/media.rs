//! The media of the published experiment and one between them: all that a node stores lies there, the files of indices too.
//!
//! ```text
//!   SATA         the published comparison            model sata-s4500, or a folder of a real drive
//!   NVMe         what servers have today             model nvme-p4510, or a folder of a real drive
//!   App Direct   the published persistent memory     model dcpmm100-128g x 12, or a folder mounted with DAX
//! ```
//!
//! A modelled medium is a folder in memory, slowed to the figures of the catalogue.

use std::path::PathBuf;

/// A medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Its name in results.
    pub name: &'static str,
    /// Name of its tier and of its option.
    pub tier: &'static str,
    /// `file` or `pmem`.
    kind: &'static str,
    /// Its name in the catalogue.
    pub model: &'static str,
    /// How many.
    pub modules: u32,
}

/// All media, from the slowest on. The published experiment names no drive: these have figures in the catalogue. Persistent memory as
/// published: 12 modules of 128 GB.
pub const MEDIA: [Medium; 3] = [
    Medium { name: "SATA", tier: "sata", kind: "file", model: "sata-s4500", modules: 1 },
    Medium { name: "NVMe", tier: "nvme", kind: "file", model: "nvme-p4510", modules: 1 },
    Medium { name: "App Direct", tier: "pmem", kind: "pmem", model: "dcpmm100-128g", modules: 12 },
];

/// The slow one of the published comparison.
pub const SLOW: &str = "SATA";
/// The fast one.
pub const FAST: &str = "App Direct";

/// Where a medium lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Modelled, in a folder of memory.
    Modelled(PathBuf),
    /// On the real medium, in this folder.
    Real(PathBuf),
}

impl Medium {
    /// Whether it is addressed, not read and written in blocks.
    pub fn is_persistent_memory(&self) -> bool {
        self.kind == "pmem"
    }

    /// Settings of a node on this medium.
    pub fn settings(&self, lies: &Lies) -> String {
        let Medium { tier, kind, model, modules, .. } = self;
        let (path, modelled) = match lies {
            Lies::Modelled(path) => {
                let absent = if *kind == "pmem" { "absent = \"emulate\"\n" } else { "" };
                (path, format!("model = \"{model}\"\nmodules = {modules}\n{absent}"))
            }
            Lies::Real(path) => (path, String::new()),
        };
        // TOML literals: a path with a backslash or a quotation mark in it stays what it is.
        format!(
            "listen = \"127.0.0.1:0\"\n\n[tiers.{tier}]\nkind = \"{kind}\"\npath = '{}'\n{modelled}\n[placement]\n\
             journal = \"{tier}\"\nwrite_image_journal = \"{tier}\"\ndata = \"{tier}\"\nsearch = \"{tier}\"\n\n{SEARCH_SETTINGS}",
            path.display(),
        )
    }
}

/// The table `[search]` of a node under test: 1 GiB of memory, which is the default, and no index of messages.
pub const SEARCH_SETTINGS: &str =
    "[search]\nlisten = \"127.0.0.1:0\"\ntrust = true\nmemory = \"1GiB\"\nmessages = false\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_medium_is_in_the_catalogue_with_all_that_its_model_needs_and_both_of_the_comparison_are_there() {
        for medium in MEDIA {
            let found = catalogue::Medium::find(medium.model).expect(medium.name);
            catalogue::Model::of(&found, medium.modules).expect(medium.name);
        }
        for name in [SLOW, FAST] {
            assert!(MEDIA.iter().any(|medium| medium.name == name), "{name}");
        }
    }

    #[test]
    fn settings_place_all_that_is_stored_on_the_medium() {
        let text = MEDIA[2].settings(&Lies::Modelled("/dev/shm/a".into()));
        let wanted = "listen = \"127.0.0.1:0\"\n\n[tiers.pmem]\nkind = \"pmem\"\npath = '/dev/shm/a'\nmodel = \"dcpmm100-128g\"\n\
                      modules = 12\nabsent = \"emulate\"\n\n[placement]\njournal = \"pmem\"\nwrite_image_journal = \"pmem\"\n\
                      data = \"pmem\"\nsearch = \"pmem\"\n\n[search]\nlisten = \"127.0.0.1:0\"\ntrust = true\nmemory = \"1GiB\"\n\
                      messages = false\n";
        assert_eq!(text, wanted);
        let real = MEDIA[0].settings(&Lies::Real("/mnt/ssd".into()));
        assert!(real.contains("kind = \"file\"\npath = '/mnt/ssd'\n\n[placement]"), "{real}");
    }
}
