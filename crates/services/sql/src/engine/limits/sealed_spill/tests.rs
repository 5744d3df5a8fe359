//! Encrypted spill files, without a query: what is on the medium, what damage does, the limit, and what is left.

use std::os::unix::fs::PermissionsExt;

use datafusion::execution::disk_manager::DiskManager;
use futures::{StreamExt, TryStreamExt};

use super::*;
use crate::engine::limits::spill_options::{SpillOptions, spill_files};

/// Text that would be recognised.
const SECRET: &[u8] = b"SAMPLE^ANN";

struct Place {
    around: tempfile::TempDir,
    files: Arc<DiskManager>,
}

fn place(bytes: u64) -> Place {
    let around = tempfile::tempdir().expect("there is room");
    let options = SpillOptions { folder: around.path().join("spill"), bytes };
    let files = spill_files(Some(&options), true).expect("it can be made").expect("they are of their own");
    Place { around, files: Arc::new(files.build().expect("it is a factory")) }
}

impl Place {
    fn file(&self) -> Arc<dyn SpillFile> {
        self.files.create_tmp_file("a test").expect("there is room")
    }

    /// A file with these bytes.
    fn written(&self, bytes: &[u8]) -> Arc<dyn SpillFile> {
        let file = self.file();
        let mut writer = file.open_writer().expect("it opens");
        writer.write_all(bytes).expect("there is room");
        writer.finish().expect("there is room");
        file
    }

    /// The files on the medium, in the order in which they were made.
    fn paths(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| {
            let entries = std::fs::read_dir(folder).expect("it lists");
            entries.map(|entry| entry.expect("it lists").path()).collect::<Vec<_>>()
        };
        let mut all: Vec<PathBuf> = list(&self.around.path().join("spill")).iter().flat_map(|at| list(at)).collect();
        let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        all.sort_by_key(number);
        all
    }
}

async fn read(file: &Arc<dyn SpillFile>) -> Result<Vec<u8>, SqlError> {
    let chunks: Vec<Bytes> = file.read_stream()?.try_collect().await?;
    Ok(chunks.concat())
}

fn rows(bytes: usize) -> Vec<u8> {
    SECRET.iter().copied().cycle().take(bytes).collect()
}

#[tokio::test]
async fn what_was_written_is_read_back_and_is_nowhere_on_the_medium() {
    let place = place(1 << 30);
    for bytes in [0, 1, 1000, BODY_BYTES - 1, BODY_BYTES, BODY_BYTES + 1, 10 * BODY_BYTES + 77] {
        let file = place.written(&rows(bytes));
        assert!(read(&file).await.expect("it is whole") == rows(bytes), "{bytes} bytes");
        assert!(read(&file).await.expect("it is read twice") == rows(bytes), "{bytes} bytes");
        let paths = place.paths();
        let on_medium = std::fs::read(&paths[0]).expect("it is there");
        assert_eq!((paths.len(), file.size()), (1, Some(on_medium.len() as u64)));
        assert!(!on_medium.windows(SECRET.len()).any(|part| part == SECRET), "{bytes} bytes");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&paths[0]), mode(paths[0].parent().expect("a folder"))), (0o600, 0o700));
        drop(file);
        assert!(place.paths().is_empty(), "it goes with its last reference");
    }
}

#[tokio::test]
async fn a_file_that_grows_is_read_up_to_its_last_flush() {
    let place = place(1 << 30);
    let file = place.file();
    let mut writer = file.open_writer().expect("it opens");
    let mut stream = file.read_stream().expect("it opens");
    for round in 0..3 {
        writer.write_all(&[round; 100]).expect("there is room");
        writer.flush().expect("there is room");
        let chunk = stream.next().await.expect("a chunk").expect("it is whole");
        assert_eq!(chunk[..], [round; 100]);
    }
    writer.write_all(b"not flushed").expect("there is room");
    assert_eq!(read(&file).await.expect("it is whole").len(), 300);
    writer.finish().expect("there is room");
    assert_eq!(read(&file).await.expect("it is whole").len(), 311);
}

#[tokio::test]
async fn every_changed_cut_or_moved_chunk_ends_the_statement_with_the_file_and_no_row_is_lost_silently() {
    let place = place(1 << 30);
    let (file, other) = (place.written(&rows(3 * BODY_BYTES)), place.written(&rows(3 * BODY_BYTES)));
    let paths = place.paths();
    let (whole, others) = (std::fs::read(&paths[0]).expect("there"), std::fs::read(&paths[1]).expect("there"));
    assert_eq!(whole.len(), 3 * CHUNK_BYTES);
    let mut damages: Vec<(String, Vec<u8>)> = Vec::new();
    for at in [0, 3, HEAD_BYTES, CHUNK_BYTES - 1, CHUNK_BYTES + 9, 3 * CHUNK_BYTES - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        damages.push((format!("byte {at}"), changed));
    }
    for bytes in [0, 2, 100, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES - 1] {
        damages.push((format!("cut to {bytes}"), whole[..bytes].to_vec()));
    }
    let chunks: Vec<&[u8]> = whole.chunks(CHUNK_BYTES).collect();
    damages.push(("two chunks exchanged".into(), [chunks[1], chunks[0], chunks[2]].concat()));
    damages.push((
        "the chunk of another file".into(),
        [chunks[0], &others[CHUNK_BYTES..2 * CHUNK_BYTES], chunks[2]].concat(),
    ));
    damages.push(("another file".into(), others));
    for (what, bytes) in damages {
        std::fs::write(&paths[0], &bytes).expect("it is written");
        let Err(SqlError::Engine(report)) = read(&file).await else { panic!("{what} is not noticed") };
        assert_eq!(report.code, "XX001", "{what}");
        assert!(report.message.contains(&paths[0].display().to_string()), "{what}: {}", report.message);
        assert!(!report.message.contains("SAMPLE"), "{what}");
    }
    std::fs::write(&paths[0], &whole).expect("it is written");
    assert!(read(&file).await.is_ok() && read(&other).await.is_ok());
}

#[tokio::test]
async fn all_files_together_take_no_more_than_they_may_and_give_it_back() {
    let place = place(4 * CHUNK_BYTES as u64);
    let first = place.written(&rows(2 * BODY_BYTES));
    let second = place.file();
    let mut writer = second.open_writer().expect("it opens");
    let error = writer.write_all(&rows(3 * BODY_BYTES)).expect_err("it is too much");
    let SqlError::Engine(report) = SqlError::from(DataFusionError::IoError(error)) else { panic!("of the engine") };
    assert_eq!((report.code, report.hint.is_some_and(|hint| hint.contains("spill_max"))), ("53400", true));
    drop((writer, second));
    let third = place.written(&rows(2 * BODY_BYTES));
    assert!(read(&first).await.is_ok() && read(&third).await.is_ok());
}

#[test]
fn what_a_killed_process_left_goes_at_the_next_start_and_another_process_has_another_key() {
    let place = place(1 << 30);
    let file = place.written(&rows(100));
    let left = place.paths().remove(0);
    // As a kill leaves it.
    std::mem::forget(file);
    let options = SpillOptions { folder: place.around.path().join("spill"), bytes: 1 << 30 };
    assert!(left.is_file());
    spill_files(Some(&options), true).expect("it can be used").expect("they are of their own");
    assert!(!left.exists());
    let files = spill_files(None, true).expect("it can be used");
    assert!(files.is_some(), "without a folder they are encrypted too");
    assert!(spill_files(None, false).expect("it can be used").is_none());
}

#[test]
fn a_file_of_which_a_write_failed_takes_no_more() {
    let place = place(1 << 30);
    let shared = SealedSpillFiles::new(place.around.path(), 1 << 30).expect("it can be made").0;
    let path = place.around.path().join("read-only");
    std::fs::write(&path, "").expect("it is written");
    let file = File::open(&path).expect("it opens");
    let open = OpenFile { shared, number: 0, path, file, written: Mutex::default() };
    assert!(open.append(&mut vec![0; HEAD_BYTES + 5]).is_err(), "it cannot be written");
    let again = open.append(&mut vec![0; HEAD_BYTES + 5]).expect_err("its number was used").to_string();
    assert!(again.contains("takes no more"), "{again}");
}
