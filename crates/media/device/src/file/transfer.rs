//! Transfers a whole range between memory and a file, despite interruptions and partial transfers.
//!
//! A read or a write may transfer fewer bytes than requested and may be interrupted; both cases are continued here and
//! nowhere else. The system call is a parameter, so that tests can simulate a system with partial transfers.

use std::io;

/// Writes all of `data` by calling `write(offset, rest)` until nothing is left.
pub(crate) fn write_fully(
    mut offset: u64,
    mut data: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while !data.is_empty() {
        match write(offset, data) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => {
                data = data.get(moved..).ok_or(io::ErrorKind::InvalidData)?;
                offset += moved as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer` by calling `read(offset, rest)` until it is full.
pub(crate) fn read_fully(
    mut offset: u64,
    mut buffer: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match read(offset, buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => {
                buffer = buffer.get_mut(moved..).ok_or(io::ErrorKind::InvalidData)?;
                offset += moved as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transfers at most `most` bytes at a time and is interrupted at every other call.
    fn stutter(calls: &mut usize, most: usize, wanted: usize) -> io::Result<usize> {
        *calls += 1;
        if calls.is_multiple_of(2) { Ok(wanted.min(most)) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    #[test]
    fn short_and_interrupted_transfers_are_continued_where_they_stopped() {
        let data: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
        for most in [1, 512, 1000, 8191, 8192, 9000] {
            let (mut calls, mut file) = (0, vec![0; 100 + data.len()]);
            write_fully(100, &data, |offset, rest| {
                let moved = stutter(&mut calls, most, rest.len())?;
                file[offset as usize..][..moved].copy_from_slice(&rest[..moved]);
                Ok(moved)
            })
            .expect("write");
            assert_eq!(file[100..], data);
            let mut back = vec![0; data.len()];
            read_fully(100, &mut back, |offset, rest| {
                let moved = stutter(&mut calls, most, rest.len())?;
                rest[..moved].copy_from_slice(&file[offset as usize..][..moved]);
                Ok(moved)
            })
            .expect("read");
            assert_eq!(back, data);
        }
    }

    #[test]
    fn a_write_of_nothing_an_early_end_and_a_real_error_end_the_transfer() {
        let mut none = [0; 8];
        assert_eq!(write_fully(0, &none, |_, _| Ok(0)).expect_err("zero").kind(), io::ErrorKind::WriteZero);
        assert_eq!(read_fully(0, &mut none, |_, _| Ok(0)).expect_err("end").kind(), io::ErrorKind::UnexpectedEof);
        let eio = || io::Error::from_raw_os_error(libc::EIO);
        assert_eq!(write_fully(0, &none, |_, _| Err(eio())).expect_err("eio").raw_os_error(), Some(libc::EIO));
        assert_eq!(read_fully(0, &mut none, |_, _| Err(eio())).expect_err("eio").raw_os_error(), Some(libc::EIO));
    }
}
