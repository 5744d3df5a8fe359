//! The media that come with the program: the files of `media/`, compiled in, in the order of their names.

use std::sync::LazyLock;

use super::Medium;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../media/", $name, ".toml")))),*]
    };
}

/// Name and text of each file.
const FILES: &[(&str, &str)] = files![
    "azure-premium-v2",
    "azure-ultra",
    "cxl-cmm-b",
    "cxl-cz120",
    "cxl-expander",
    "dcpmm100-128g",
    "dcpmm100-256g",
    "dcpmm100-512g",
    "ddr4-2666",
    "ddr4-3200",
    "ddr5",
    "ddr5-graviton3",
    "ebs-gp3",
    "ebs-io2bx",
    "fc-san-16g",
    "gcp-hyperdisk-balanced",
    "gcp-hyperdisk-extreme",
    "hbm2-a64fx",
    "hbm2e-xeon-max",
    "mrdimm-8800",
    "nv-cmm-e3s",
    "nvdimm-n",
    "nvme-cm7r",
    "nvme-micron9550",
    "nvme-micron9650",
    "nvme-p4500",
    "nvme-p4510",
    "nvme-pm1743",
    "nvme-pm9a3",
    "optane-p4800x",
    "optane-p5800x",
    "optane-p5800x-400g",
    "pmem200-128g",
    "pmem200-256g",
    "pmem200-512g",
    "sata-s4500",
    "scm-kioxia-fl6",
    "scm-p5810",
];

static MEDIA: LazyLock<Vec<Medium>> = LazyLock::new(|| {
    let read = |(name, text): &(&str, &str)| {
        let medium = Medium::parse(&format!("{name}.toml"), text);
        // The files are part of the program; a test parses each.
        medium.unwrap_or_else(|error| panic!("a built-in medium is broken: {error}"))
    };
    FILES.iter().map(read).collect()
});

/// All built-in media, in the order of their names.
pub fn media() -> &'static [Medium] {
    &MEDIA
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_parses_bears_its_own_name_and_gives_a_source_for_every_number() {
        for (name, text) in FILES {
            let medium = Medium::parse(&format!("{name}.toml"), text).expect(name);
            assert_eq!(&medium.name, name);
            assert!(!medium.figures.is_empty() || !medium.curves.is_empty(), "{name} says nothing");
            for figure in &medium.figures {
                assert!(figure.source.len() > 10, "{name} {:?}: {:?} is no source", figure.key, figure.source);
            }
            for curve in &medium.curves {
                assert!(curve.source.len() > 10, "{name}: {:?} is no source", curve.source);
            }
        }
        assert!(FILES.is_sorted(), "the order of the names is the order of the list");
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("media");
        let all = Medium::all(Some(&folder)).expect("read");
        assert_eq!(all.len(), media().len(), "those of the same name are replaced");
        assert_eq!(Medium::all(None).expect("built in").len(), media().len());
        let found: Vec<String> = Medium::read_folder(&folder).expect("read").into_iter().map(|m| m.name).collect();
        let built_in: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, built_in);
    }
}
