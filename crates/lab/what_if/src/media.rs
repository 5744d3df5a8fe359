//! What is under a mount: a medium with a description, a mirror of such, or an NBD export.
//!
//! ```text
//!   optane-p4800x                                  memory, and the model's time
//!   optane-p4800x+optane-p4800x+sata-s4500         a mirrored volume, each copy on memory with a model
//!   nbd+unix:///vol?socket=/run/t/nbd.sock         somebody's export, for instance a volume on real tiers
//! ```

use std::sync::Arc;

use anyhow::{Context, ensure};
use catalogue::{Budget, Medium, Model, ModelShelf, Timing};
use device::{Device, MemoryShelf, Shelf};
use nbd::{ClientOptions, NbdDevice, NbdUri};
use volume::{NewVolume, Options, Place, Volume};

use crate::delay::DelayedDevice;

/// Bytes at the start of an export that must be zeros: labels of partitions and superblocks of file systems lie there.
const LOOKED_AT: usize = 1 << 20;

/// The name of the path alone.
pub const PATH: &str = "path";

/// What the user asks for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A medium with a description.
    Modelled(Box<Medium>),
    /// A mirror with a copy on each.
    Mirror(Vec<Medium>),
    /// An NBD export.
    Export(String),
}

/// A device under test.
#[derive(Debug)]
pub struct UnderTest {
    /// Its name in the result.
    pub name: String,
    /// What it is in words.
    pub tier: String,
    /// The medium's model, if it is one medium.
    pub model: Option<Model>,
    /// The device, with its delays.
    pub device: Arc<DelayedDevice>,
    /// What keeps it open.
    pub volume: Option<Arc<Volume>>,
    /// Whether no medium was modelled.
    pub real: bool,
    /// What a flush protects from.
    pub durability: String,
}

impl Target {
    /// The target that `text` names, among `known` media.
    ///
    /// # Errors
    /// An unknown medium, one without the figures of a model, a mirror of more than three, an address that is none.
    pub fn parse(text: &str, known: &[Medium]) -> anyhow::Result<Target> {
        if text.contains("://") {
            text.parse::<NbdUri>().with_context(|| format!("the export {text}"))?;
            return Ok(Target::Export(text.to_owned()));
        }
        let media = text.split('+').map(|name| Medium::find_in(known, name)).collect::<Result<Vec<_>, _>>()?;
        for medium in &media {
            model_of(medium)?;
        }
        ensure!(media.len() <= 3, "{text}: a mirror has three copies at most");
        Ok(match <[Medium; 1]>::try_from(media) {
            Ok([medium]) => Target::Modelled(Box::new(medium)),
            Err(media) => Target::Mirror(media),
        })
    }

    /// Its name in the result.
    pub fn name(&self) -> String {
        match self {
            Target::Modelled(medium) => medium.name.clone(),
            Target::Mirror(media) => media.iter().map(|medium| medium.name.as_str()).collect::<Vec<_>>().join("+"),
            Target::Export(uri) => uri.clone(),
        }
    }

    /// Opens it. An export keeps its size; the others get `bytes` bytes of memory, which are taken as they are written.
    ///
    /// # Errors
    /// Those of the media; an export that has something on it, without `overwrite`.
    pub fn open(&self, bytes: u64, overwrite: bool) -> anyhow::Result<UnderTest> {
        let name = self.name();
        match self {
            Target::Modelled(medium) => {
                let model = model_of(medium)?;
                let device = Arc::new(DelayedDevice::new(memory(bytes)?, Some(model.clone()))?);
                let tier = model.kind().to_string();
                let durability = "emulated".to_owned();
                Ok(UnderTest { name, tier, model: Some(model), device, volume: None, real: false, durability })
            }
            Target::Mirror(media) => {
                let volume = Arc::new(mirror(media, bytes)?);
                let below: Arc<dyn Device> = volume.clone();
                let device = Arc::new(DelayedDevice::new(below, None)?);
                let tier = format!("mirror of {}", media.len());
                let durability = "emulated".to_owned();
                Ok(UnderTest { name, tier, model: None, device, volume: Some(volume), real: false, durability })
            }
            Target::Export(uri) => {
                let below: Arc<dyn Device> = NbdDevice::connect(ClientOptions::new(uri.parse()?))?;
                ensure!(
                    overwrite || is_empty(&*below)?,
                    "{uri} is not empty, and its content would be lost: give an empty volume, or --overwrite"
                );
                let durability = below.durability().as_str().to_owned();
                let device = Arc::new(DelayedDevice::new(below, None)?);
                let tier = "export".to_owned();
                Ok(UnderTest { name, tier, model: None, device, volume: None, real: true, durability })
            }
        }
    }
}

/// Memory of this process without a model: the path alone.
///
/// # Errors
/// There is no memory.
pub fn path_alone(bytes: u64) -> anyhow::Result<UnderTest> {
    let device = Arc::new(DelayedDevice::new(memory(bytes)?, None)?);
    Ok(UnderTest {
        name: PATH.to_owned(),
        tier: "memory".to_owned(),
        model: None,
        device,
        volume: None,
        real: true,
        durability: "none".to_owned(),
    })
}

fn memory(bytes: u64) -> anyhow::Result<Arc<dyn Device>> {
    Ok(MemoryShelf::new().create("disk", bytes)?)
}

/// The model of one module of a medium.
fn model_of(medium: &Medium) -> anyhow::Result<Model> {
    Ok(Model::of(medium, 1)?)
}

fn mirror(media: &[Medium], bytes: u64) -> anyhow::Result<Volume> {
    let mut places = Vec::new();
    for medium in media {
        let model = model_of(medium)?;
        let budget = Budget::new(&model);
        let shelf = ModelShelf::new(Arc::new(MemoryShelf::new()), model, budget, Timing::Timed);
        places.push(Place::on(Arc::new(shelf)));
    }
    // It is in the memory of this process: nobody else can know a volume of the same number.
    let options = Options { scrub_interval: None, ..Options::new(1) };
    let new = NewVolume { volume: [1; 16], bytes, min_copies: None, is_thin: false };
    Volume::create(&places, &new, &options)?;
    Ok(Volume::open(places, options)?)
}

fn is_empty(device: &dyn Device) -> anyhow::Result<bool> {
    let mut start = vec![0; LOOKED_AT.min(device.len() as usize)];
    device.read(0, &mut start)?;
    Ok(start.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_media_mirrors_and_exports_and_the_rest_is_refused() {
        let parse = |text: &str| Target::parse(text, catalogue::media());
        assert!(matches!(parse("sata-s4500").expect("known"), Target::Modelled(medium) if medium.name == "sata-s4500"));
        let mirror = parse("sata-s4500+sata-s4500").expect("known");
        assert_eq!(mirror.name(), "sata-s4500+sata-s4500");
        assert!(matches!(mirror, Target::Mirror(media) if media.len() == 2));
        assert!(matches!(parse("nbd+unix:///v?socket=/s").expect("an address"), Target::Export(_)));
        for bad in ["", "no-such", "ebs-gp3", "sata-s4500+", "http://x", &["sata-s4500"; 4].join("+")] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_modelled_medium_and_a_mirror_keep_what_is_written() {
        for text in ["sata-s4500", "dcpmm100-128g+dcpmm100-128g+dcpmm100-128g"] {
            let target = Target::parse(text, catalogue::media()).expect("known");
            let under_test = target.open(8 << 20, false).expect("opened");
            assert!(!under_test.real && under_test.durability == "emulated", "{text}");
            under_test.device.write_flush(4096, &[9; 4096]).expect("written");
            let mut bytes = [0; 4096];
            under_test.device.read(4096, &mut bytes).expect("read");
            assert_eq!(bytes, [9; 4096], "{text}");
        }
    }
}
