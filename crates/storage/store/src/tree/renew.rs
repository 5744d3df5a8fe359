//! What rewriting needs of a tree: the pages on the way to a key, the long values in its leaf, and marking pages as changed that stay as
//! they are, so that the next checkpoint writes them.
//!
//! Invariant: nothing that a reader sees changes, neither a cell nor the LSN of a page.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Tree;
use super::inner::Toward;
use super::leaf::Leaf;
use super::read::{Fault, Restarts};
use crate::StoreError;
use crate::page::{Extent, PageId};
use crate::pages::Pages;

/// The pages from the root to the leaf of a key, and what is long in that leaf.
#[derive(Debug)]
pub(crate) struct Way {
    /// From the root down.
    pub(crate) inner: Vec<PageId>,
    /// The leaf.
    pub(crate) leaf: PageId,
    /// Its high fence; empty means that there is no leaf after it.
    pub(crate) high: Bytes,
    /// Its keys whose values lie in extents, in order.
    pub(crate) long: Vec<(Bytes, Box<[Extent]>)>,
}

/// The way to the leaf of a tree that covers a key; an empty one is in the first leaf. Any thread. Errors: [`StoreError::Corrupt`],
/// [`StoreError::Device`].
pub(crate) fn way_to<P: Pages>(tree: Tree, pages: &P, key: &[u8]) -> Result<Way, StoreError> {
    let mut restarts = Restarts::new();
    loop {
        let mut inner = Vec::new();
        let fault = match tree.descend(pages, Toward::At(key), |page, _| inner.push(page)) {
            Err(fault) => fault,
            Ok(leaf) => match pages.read(leaf) {
                Err(error) => Fault { page: leaf, error: Some(error) },
                Ok(bytes) => match Leaf::of(&bytes, tree.id).filter(|leaf| leaf.covers(key)) {
                    Some(found) => {
                        let high = Bytes::copy_from_slice(found.high);
                        let mut long = Vec::new();
                        tree.each_long(&bytes, &[], |key, extents| {
                            long.push((Bytes::copy_from_slice(key), extents.into()));
                            true
                        });
                        return Ok(Way { inner, leaf, high, long });
                    }
                    None => Fault { page: leaf, error: None },
                },
            },
        };
        restarts.again(tree, fault)?;
    }
}

/// Marks those pages on the way to a key as changed that are among `wanted`; returns how many they are. Writer only. Errors: as
/// [`way_to`], [`StoreError::Full`]; some may be marked.
pub(crate) fn renew<P: Pages>(tree: Tree, pages: &P, key: &[u8], wanted: &[PageId]) -> Result<u64, StoreError> {
    let mut way = Vec::new();
    let leaf = tree
        .descend(pages, Toward::At(key), |page, _| way.push(page))
        .map_err(|fault| fault.error.unwrap_or_else(|| tree.corrupt(fault.page, "does not match its parent")))?;
    let mut renewed = 0;
    let mut image = vec![0; pages.page_bytes()];
    for page in way.into_iter().filter(|page| wanted.contains(page)) {
        // Only this thread changes the tree: the words are of one state.
        pages.inner(page, |words| {
            for (bytes, word) in image.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
            }
        })?;
        pages.replace_inner(page, &image)?;
        renewed += 1;
    }
    if wanted.contains(&leaf) {
        // It is dirty once it is latched for changing.
        drop(pages.write(leaf)?);
        renewed += 1;
    }
    Ok(renewed)
}
