//! Prints the content of a store's devices, for diagnosis: superblock, batch of write images, devices, map.

use std::fmt;
use std::sync::Arc;

use device::{AlignedBuffer, Shelf};

use crate::StoreError;
use crate::checkpoint::open::superblock_of;
use crate::images::Images;
use crate::images::format::{Headers, Mark, sum};
use crate::space::bitmap::Bitmap;
use crate::space::devices::{DataDevices, device_name};
use crate::space::map;
use crate::space::poison::Poison;
use crate::space::superblock::{Superblock, Unreadable};

/// Prints the content of the two shelves; damage is printed, not refused. Changes nothing.
///
/// Errors: [`StoreError::Device`], [`StoreError::Corrupt`] if devices are missing.
pub(crate) fn inspect(data: Arc<dyn Shelf>, images: Arc<dyn Shelf>, out: &mut String) -> Result<(), StoreError> {
    print_images(images, out)?;
    if !data.list()?.contains(&device_name(0)) {
        return line(out, format_args!("no data devices"));
    }
    let superblock = match superblock_of(&*data)? {
        Ok(superblock) => superblock,
        Err(Unreadable::Damaged) => return line(out, format_args!("superblock: damaged, or not written in place yet")),
        Err(Unreadable::Version(version)) => return line(out, format_args!("superblock: of version {version}")),
    };
    print_superblock(&superblock, out)?;
    let data_devices = DataDevices::open(data, superblock.geometry, Poison::default(), false)?;
    let mut page = AlignedBuffer::zeroed(superblock.geometry.page_bytes as usize);
    for device in 0..data_devices.count() {
        let name = device_name(device);
        if device >= superblock.devices {
            line(out, format_args!("{name}: made since the last checkpoint"))?;
            continue;
        }
        let mut bitmap = Bitmap::new(superblock.geometry.device_pages);
        let mut damaged = 0;
        for nth in 0..superblock.geometry.maps() {
            data_devices.read(superblock.geometry.map_page(device, nth), &mut page)?;
            damaged += u32::from(!map::decode(superblock.geometry, device, nth, &page, &mut bitmap));
        }
        let (used, pages) = (bitmap.used(), bitmap.pages());
        match damaged {
            0 => line(out, format_args!("{name}: {used} of {pages} pages in use")),
            _ => line(out, format_args!("{name}: {damaged} pages of its map are damaged, or not written in place yet")),
        }?;
    }
    Ok(())
}

/// Adds a line. Returns `Ok`, so that it can be the last expression of a function.
fn line(out: &mut String, text: fmt::Arguments<'_>) -> Result<(), StoreError> {
    out.push_str(&text.to_string());
    out.push('\n');
    Ok(())
}

fn print_superblock(superblock: &Superblock, out: &mut String) -> Result<(), StoreError> {
    let Superblock { geometry, devices, identity, journal, catalog, is_clean, redo_lsn, checkpoint, micros, .. } =
        superblock;
    line(
        out,
        format_args!(
            "superblock: store {identity:016x}, journal {journal:08x}, checkpoint {checkpoint} begun at {micros} us"
        ),
    )?;
    line(
        out,
        format_args!(
            "  every record before lsn {redo_lsn} is in the pages; roots in page {catalog}; closed: {is_clean}"
        ),
    )?;
    let (page_bytes, device_pages) = (geometry.page_bytes, geometry.device_pages);
    line(out, format_args!("  {devices} devices of {device_pages} pages of {page_bytes} bytes"))
}

fn print_images(shelf: Arc<dyn Shelf>, out: &mut String) -> Result<(), StoreError> {
    let Some(images) = Images::open(shelf, Poison::default(), false)? else {
        return line(out, format_args!("no write image journal"));
    };
    line(out, format_args!("write image journal: {} bytes", images.capacity()))?;
    let (header, mark) = match images.headers() {
        Headers::Zeros => return line(out, format_args!("  no batch yet")),
        Headers::Torn => return line(out, format_args!("  its header is torn: the batch does not count")),
        Headers::Damaged => return line(out, format_args!("  both copies of its header are damaged")),
        Headers::Batch(header, mark) => (header, mark),
    };
    let what = match mark {
        Mark::Committed => "committed: is written in place at the next opening",
        Mark::Invalid => "invalidated: all of it is written back",
    };
    line(out, format_args!("  {header}; {what}"))?;
    let mut damaged = 0_u32;
    let has_table = images.visit(&header, |_, expected, image| {
        damaged += u32::from(sum(image) != expected);
        Ok(())
    })?;
    match (has_table, damaged, mark) {
        (true, 0, _) => line(out, format_args!("  all images verify")),
        (_, _, Mark::Invalid) => line(out, format_args!("  partly overwritten by a checkpoint that was not committed")),
        (true, damaged, Mark::Committed) => line(out, format_args!("  {damaged} images are damaged")),
        (false, _, Mark::Committed) => line(out, format_args!("  its table is damaged")),
    }
}
