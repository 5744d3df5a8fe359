//! The bytes of simulated devices, cheap to copy: images share the blocks in which they do not differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::BLOCK_BYTES;

/// Identifies a device independently of its name; an index into [`State::files`].
pub(super) type FileId = usize;

/// The bytes of one device. Blocks that were never written are absent and read as zeros.
#[derive(Clone, Debug)]
pub(super) struct Content {
    blocks: Vec<Option<Arc<[u8; BLOCK_BYTES]>>>,
}

impl Content {
    pub(super) fn zeroed(bytes: u64) -> Content {
        Content { blocks: vec![None; (bytes / BLOCK_BYTES as u64) as usize] }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }

    /// Copies bytes out.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let mut at = offset as usize;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let (out, behind) = rest.split_at_mut(rest.len().min(BLOCK_BYTES - within));
            match &self.blocks[block] {
                Some(block) => out.copy_from_slice(&block[within..within + out.len()]),
                None => out.fill(0),
            }
            at += out.len();
            rest = behind;
        }
    }

    /// Overwrites bytes.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset as usize;
        let mut rest = data;
        while !rest.is_empty() {
            let within = at % BLOCK_BYTES;
            let (piece, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            let block = self.blocks[at / BLOCK_BYTES].get_or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            Arc::make_mut(block)[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len();
            rest = behind;
        }
    }
}

/// All devices of a shelf. A removed device keeps its place, so that handles to it still work.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) names: BTreeMap<String, FileId>,
    pub(super) files: Vec<Content>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_its_bytes_when_the_original_is_overwritten() {
        let mut content = Content::zeroed(3 * BLOCK_BYTES as u64);
        content.write(4096 + 512, &[1; 512]);
        let copy = content.clone();
        content.write(4096 + 512, &[2; 4096]);
        let read = |content: &Content| {
            let mut bytes = vec![9; 3 * BLOCK_BYTES];
            content.read(0, &mut bytes);
            bytes
        };
        let (new, old) = (read(&content), read(&copy));
        assert!(old[..4608].iter().chain(&old[5120..]).all(|b| *b == 0) && old[4608..5120] == [1; 512]);
        assert!(new[4608..8704] == [2; 4096] && new[8704..].iter().all(|b| *b == 0));
    }
}
