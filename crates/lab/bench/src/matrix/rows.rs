//! The rows of the matrix: what the journal lies on, what was published of it, and the settings of its node.
//!
//! Data, and the text of a `terrace.toml` made of it; nothing is started here.

use std::path::Path;

use workload::t4::published::{Published, TESTS};

/// A medium that is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modelled {
    /// Name of its tier.
    pub(super) tier: &'static str,
    /// `file` or `pmem`.
    pub(super) kind: &'static str,
    /// Its name in the catalogue.
    pub(super) medium: &'static str,
    /// How many.
    pub(super) modules: u32,
}

/// What a row runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The node's data folder, on a disk of this machine.
    Here,
    /// The journal on a modelled medium.
    Model(Modelled),
    /// Journal and write image journal on modelled persistent memory.
    JournalAndImages,
    /// Memory Mode: near memory in front of modelled far memory, the journal on a modelled Optane SSD.
    MemoryMode,
    /// Far memory, journal and write image journal on the same modelled persistent memory.
    Dual,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixMedium {
    /// Its name.
    pub(super) name: &'static str,
    /// What it runs on.
    pub(super) what: What,
    /// Numbers of the published tests of the same, the one with the newer processors last.
    pub(super) tests: &'static [u32],
}

/// The row that ours are put in proportion to: the medium of published tests 1 and 3.
pub(super) const BASE: &str = "journal on Optane SSD";

/// All rows. What they do not place, pages and mostly the write image journal, lies in the node's data folder. The SATA and NVMe drives have figures in the catalogue; the publication has neither. Persistent memory as
/// published: 12 modules of 128 GB, 1.5 TiB.
pub(super) const ROWS: [MatrixMedium; 8] = [
    MatrixMedium { name: "journal on this disk", what: What::Here, tests: &[] },
    MatrixMedium { name: "journal on SATA", what: model("sata", "file", "sata-s4500", 1), tests: &[] },
    MatrixMedium { name: "journal on NVMe", what: model("nvme", "file", "nvme-p4510", 1), tests: &[] },
    MatrixMedium { name: BASE, what: model("optane", "file", "optane-p4800x", 1), tests: &[1, 3] },
    MatrixMedium { name: "journal on App Direct", what: model("pmem", "pmem", "dcpmm100-128g", 12), tests: &[4] },
    MatrixMedium { name: "journal + WIJ on App Direct", what: What::JournalAndImages, tests: &[] },
    MatrixMedium { name: "Memory Mode", what: What::MemoryMode, tests: &[2] },
    MatrixMedium { name: "Dual", what: What::Dual, tests: &[] },
];

/// A row whose journal alone is modelled.
const fn model(tier: &'static str, kind: &'static str, medium: &'static str, modules: u32) -> What {
    What::Model(Modelled { tier, kind, medium, modules })
}

impl MatrixMedium {
    /// The published tests of the same.
    pub(super) fn published(&self) -> impl Iterator<Item = &'static Published> + Clone {
        self.tests.iter().filter_map(|number| TESTS.iter().find(|test| test.test == *number))
    }
}

/// Persistent memory as published.
const PMEM: Modelled = Modelled { tier: "pmem", kind: "pmem", medium: "dcpmm100-128g", modules: 12 };

/// The drive of published tests 1 to 3.
const OPTANE: Modelled = Modelled { tier: "optane", kind: "file", medium: "optane-p4800x", modules: 1 };

/// Near and far memory of the rows that have both: 1:4, with far memory as large as the page cache of the other rows.
const NEAR: &str = "64 MiB";
const FAR: &str = "256 MiB";

impl What {
    /// What is modelled of it, the journal's medium first.
    pub(super) fn modelled(&self) -> Vec<Modelled> {
        match self {
            What::Here => Vec::new(),
            What::Model(modelled) => vec![*modelled],
            What::JournalAndImages | What::Dual => vec![PMEM],
            What::MemoryMode => vec![OPTANE, PMEM],
        }
    }

    /// Settings of a node of this row, its tiers below `folder`; none where it is the node's data folder alone. What a row
    /// does not name lies in the data folder.
    pub(super) fn settings(&self, folder: &Path) -> Option<String> {
        let near = format!("[tiers.dram]\nkind = \"memory\"\nbytes = \"{NEAR}\"\n\n");
        let far = format!("far_bytes = \"{FAR}\"\ndata = \"home\"\n");
        Some(match self {
            What::Here => return None,
            What::Model(modelled) => modelled.settings(&folder.join("tier")),
            What::JournalAndImages => {
                format!("{}write_image_journal = \"pmem\"\n", PMEM.settings(&folder.join("tier")))
            }
            What::MemoryMode => {
                let (optane, pmem) = (OPTANE.tier(&folder.join("tier")), PMEM.tier(&folder.join("far")));
                format!(
                    "mode = \"memory\"\n\n{near}{optane}\n{pmem}\n[placement]\njournal = \"optane\"\n\
                     write_image_journal = \"home\"\n{far}"
                )
            }
            What::Dual => {
                let pmem = PMEM.tier(&folder.join("tier"));
                format!("mode = \"dual\"\n\n{near}{pmem}bytes = \"4 GiB\"\n\n[placement]\n{far}")
            }
        })
    }
}

impl Modelled {
    /// Settings of a node whose journal lies on this medium, in `folder`.
    pub(super) fn settings(&self, folder: &Path) -> String {
        format!("{}\n[placement]\njournal = \"{}\"\n", self.tier(folder), self.tier)
    }

    /// The tier alone.
    fn tier(&self, folder: &Path) -> String {
        let Modelled { tier, kind, medium, modules } = self;
        let absent = if *kind == "pmem" { "absent = \"emulate\"\n" } else { "" };
        // A TOML literal: a path with a backslash or a quotation mark in it stays what it is.
        let path = folder.display();
        format!(
            "[tiers.{tier}]\nkind = \"{kind}\"\npath = '{path}'\nmodel = \"{medium}\"\nmodules = {modules}\n{absent}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_test_has_a_row_and_the_base_is_one() {
        let mut tests: Vec<u32> = ROWS.iter().flat_map(|row| row.tests.iter().copied()).collect();
        tests.sort_unstable();
        assert_eq!(tests, [1, 2, 3, 4]);
        let base = ROWS.iter().find(|row| row.name == BASE).expect("it is a row");
        assert_eq!(base.published().map(|test| test.test).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn every_modelled_medium_is_in_the_catalogue_with_all_that_its_model_needs() {
        for row in ROWS {
            for modelled in row.what.modelled() {
                let medium = catalogue::Medium::find(modelled.medium).expect(row.name);
                catalogue::Model::of(&medium, modelled.modules).expect(row.name);
            }
        }
    }

    #[test]
    fn settings_name_the_tier_its_model_and_the_journal() {
        let What::Model(pmem) = ROWS[4].what else { panic!("it is modelled") };
        let wanted = "[tiers.pmem]\nkind = \"pmem\"\npath = '/dev/shm/x'\nmodel = \"dcpmm100-128g\"\nmodules = 12\n\
                      absent = \"emulate\"\n\n[placement]\njournal = \"pmem\"\n";
        assert_eq!(pmem.settings(Path::new("/dev/shm/x")), wanted);
        let both = What::JournalAndImages.settings(Path::new("/dev/shm/x")).expect("it is modelled");
        assert!(both.ends_with("journal = \"pmem\"\nwrite_image_journal = \"pmem\"\n"), "{both}");
    }
}
