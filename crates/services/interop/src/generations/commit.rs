//! The commit that a folder is checked out at, read from its `.git` without running anything.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of a file of git that are read.
const BYTES_MAX: u64 = 4 << 20;

/// How far up a repository is looked for.
const FOLDERS_MAX: usize = 32;

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether a text is the hash of a commit.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The folder of git's files of the repository that a folder lies in.
fn repository(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    let found = folder.ancestors().take(FOLDERS_MAX).map(|up| up.join(".git")).find(|path| path.exists())?;
    if found.is_dir() {
        return Some(found);
    }
    // A work tree beside the repository has a file that names the place.
    let text = read(&found)?;
    let place = text.strip_prefix("gitdir:")?.trim();
    Some(found.parent()?.join(place))
}

/// The commit of HEAD of the repository that a folder lies in; none where it lies in none, or HEAD cannot be read. Whether the files
/// are as they were committed is not looked at.
pub fn commit_of(folder: &Path) -> Option<String> {
    let git = repository(folder)?;
    let head = read(&git.join("HEAD"))?;
    let head = head.trim();
    let Some(reference) = head.strip_prefix("ref:").map(str::trim) else {
        return is_commit(head).then(|| head.to_owned());
    };
    // A name, no path that leads elsewhere.
    if !reference.starts_with("refs/") || reference.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return None;
    }
    let shared = read(&git.join("commondir")).map_or_else(|| git.clone(), |place| git.join(place.trim()));
    for folder in [&git, &shared] {
        if let Some(found) =
            read(&folder.join(reference)).map(|text| text.trim().to_owned()).filter(|text| is_commit(text))
        {
            return Some(found);
        }
    }
    let packed = read(&shared.join("packed-refs"))?;
    let line = packed.lines().find_map(|line| line.split_once(' ').filter(|(_, name)| name.trim() == reference));
    line.map(|(hash, _)| hash.to_owned()).filter(|hash| is_commit(hash))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_commit_of_head_is_found_loose_packed_and_detached() {
        let (one, two) = ("1".repeat(40), "a".repeat(40));
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let folder = dir.path().join("sites/north");
        fs::create_dir_all(&folder).expect("made");
        assert_eq!(commit_of(&folder), None);
        put(".git/HEAD", "ref: refs/heads/main\n");
        put(".git/packed-refs", &format!("# pack-refs\n{two} refs/heads/main\n"));
        assert_eq!(commit_of(&folder), Some(two.clone()));
        put(".git/refs/heads/main", &format!("{one}\n"));
        assert_eq!(commit_of(&folder), Some(one));
        put(".git/HEAD", &two);
        assert_eq!(commit_of(&folder), Some(two.clone()));
        for odd in ["ref: ../../secret", "ref: refs/../HEAD", "nothing", ""] {
            put(".git/HEAD", odd);
            assert_eq!(commit_of(&folder), None, "{odd}");
        }
        // A work tree of its own.
        put("tree/.git", "gitdir: ../.git/worktrees/tree\n");
        put(".git/worktrees/tree/HEAD", "ref: refs/heads/other\n");
        put(".git/worktrees/tree/commondir", "../..\n");
        put(".git/refs/heads/other", &two);
        fs::create_dir_all(dir.path().join("tree/production")).expect("made");
        assert_eq!(commit_of(&dir.path().join("tree/production")), Some(two));
    }
}
