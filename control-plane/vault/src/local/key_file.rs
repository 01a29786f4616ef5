//! The file of local keys.
//!
//! One line `asp-vault-keys 1`, then a line `ID FROM KEY` for each key: its id, the Unix milliseconds from which it is
//! current, and 32 bytes in base64. Keeps true: readers see the file before or after a change, never in between;
//! changes by two processes follow each other; nobody but the owner reads it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use asp_platform::clock;
use asp_platform::secret::random_hex;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::key_service::DataKey;

const HEADER: &str = "asp-vault-keys 1";
/// Maximum number of keys: a rotation each week for nearly five years.
const MAX_KEYS: usize = 256;
/// Maximum size of the file in bytes; a line has less than 128.
const MAX_FILE: u64 = 64 * 1024;
/// Length of a generated id in bytes, before hex.
const ID_BYTES: usize = 8;
/// Maximum length of an id.
const MAX_ID: usize = 64;

/// Time for which a key that is no longer current cannot be removed, in milliseconds: processes that have read the file before
/// seal with it for some seconds more, and clocks differ.
const SETTLING_MS: u64 = 60_000;

/// Key-encryption key of the file.
#[derive(Clone, Debug)]
pub(super) struct LocalKey {
    pub(super) id: String,
    from_ms: u64,
    pub(super) key: DataKey,
}

/// Description of a key, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDescription {
    pub id: String,
    /// Unix milliseconds from which it wraps new data keys.
    pub from_ms: u64,
    pub is_current: bool,
}

/// Identity of a file's content: every change of the file changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

impl FileIdentity {
    /// Returns the identity of a file; `None` if there is none.
    pub(super) fn of(path: &Path) -> Option<FileIdentity> {
        let metadata = fs::metadata(path).ok()?;
        Some(FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.size(),
        })
    }
}

/// The keys of a file; never empty.
#[derive(Debug)]
pub(super) struct KeyRing(Vec<LocalKey>);

impl KeyRing {
    /// Creates a first key.
    pub(super) fn generate() -> Result<KeyRing, VaultError> {
        Ok(KeyRing(vec![new_key(clock::now_ms())?]))
    }

    /// Returns the key with an id.
    pub(super) fn key(&self, id: &str) -> Option<&LocalKey> {
        self.0.iter().find(|key| key.id == id)
    }

    /// Returns the key that became current last; if all are for later, the one that comes first.
    pub(super) fn current(&self) -> Result<&LocalKey, VaultError> {
        self.current_at(clock::now_ms())
    }

    fn current_at(&self, now_ms: u64) -> Result<&LocalKey, VaultError> {
        let begun = self.0.iter().filter(|key| key.from_ms <= now_ms);
        let current = begun.max_by_key(|key| key.from_ms);
        let current = current.or_else(|| self.0.iter().min_by_key(|key| key.from_ms));
        current.ok_or_else(|| VaultError::KeyFile("has no key".into()))
    }

    fn entries(&self) -> Result<Vec<KeyDescription>, VaultError> {
        let current = self.current()?;
        let entry = |key: &LocalKey| KeyDescription {
            id: key.id.clone(),
            from_ms: key.from_ms,
            is_current: key.id == current.id,
        };
        Ok(self.0.iter().map(entry).collect())
    }

    fn parse(text: &str) -> Result<KeyRing, VaultError> {
        let fault = |line: usize, message: &str| VaultError::KeyFile(format!("line {line}: {message}"));
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        if lines.next().map(|(_, line)| line) != Some(HEADER) {
            return Err(fault(1, &format!("must be `{HEADER}`")));
        }
        let mut keys: Vec<LocalKey> = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let key = parse_line(line).ok_or_else(|| fault(number, "must be `ID FROM KEY`"))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(fault(number, "repeats the id of another key"));
            }
            if keys.len() == MAX_KEYS {
                return Err(fault(number, &format!("is one key more than the {MAX_KEYS} allowed")));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(VaultError::KeyFile("has no key".into()));
        }
        Ok(KeyRing(keys))
    }

    fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(128 * (self.0.len() + 1)));
        text.push_str(HEADER);
        text.push('\n');
        for LocalKey { id, from_ms, key } in &self.0 {
            let encoded = Zeroizing::new(STANDARD.encode(key.expose()));
            text.push_str(&format!("{id} {from_ms} "));
            text.push_str(&encoded);
            text.push('\n');
        }
        text
    }
}

fn parse_line(line: &str) -> Option<LocalKey> {
    let mut words = line.split_ascii_whitespace();
    let id = words.next()?;
    let from = words.next()?;
    let key = words.next()?;
    let is_id = id.len() <= MAX_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if words.next().is_some() || !is_id {
        return None;
    }
    let key = Zeroizing::new(STANDARD.decode(key).ok()?);
    Some(LocalKey { id: id.to_owned(), from_ms: from.parse().ok()?, key: DataKey::from_slice(&key)? })
}

/// Reads the keys of a file.
pub(super) fn read(path: &Path) -> Result<KeyRing, VaultError> {
    match read_if_there(path)? {
        Some(keys) => Ok(keys),
        None => Err(VaultError::KeyFile(format!(
            "{} does not exist: restore it from its backup, or create it with `asp vault rotate` if nothing was sealed yet",
            path.display()
        ))),
    }
}

/// Reads the keys of a file, and creates it with a first one if it does not exist.
pub(super) fn read_or_create(path: &Path) -> Result<KeyRing, VaultError> {
    if let Some(keys) = read_if_there(path)? {
        return Ok(keys);
    }
    let _lock = lock(path)?;
    // Another process may have created it since.
    if let Some(keys) = read_if_there(path)? {
        return Ok(keys);
    }
    let keys = KeyRing::generate()?;
    replace(path, &keys)?;
    tracing::info!(
        path = %path.display(),
        "vault key file created; keep a backup: what is sealed with a lost key is lost"
    );
    Ok(keys)
}

/// Returns the keys of a file, oldest first.
pub fn list(path: &Path) -> Result<Vec<KeyDescription>, VaultError> {
    read(path)?.entries()
}

/// Adds a key that becomes current at `from_ms`, and returns it. Former keys stay. Creates the file if it does not
/// exist.
pub fn rotate(path: &Path, from_ms: u64) -> Result<KeyDescription, VaultError> {
    let _lock = lock(path)?;
    let mut keys = read_if_there(path)?.map_or_else(Vec::new, |keys| keys.0);
    if keys.len() >= MAX_KEYS {
        let message = format!("has {MAX_KEYS} keys; remove those that nothing uses with `asp vault forget`");
        return Err(VaultError::KeyFile(message));
    }
    // After every other key, so that it becomes current when it says so.
    let latest = keys.iter().map(|key| key.from_ms).max().unwrap_or_default();
    let key = new_key(from_ms.max(latest.saturating_add(1)))?;
    let id = key.id.clone();
    keys.push(key);
    let keys = KeyRing(keys);
    replace(path, &keys)?;
    let added = keys.entries()?.into_iter().find(|entry| entry.id == id);
    added.ok_or_else(|| VaultError::KeyFile("lost the new key".into()))
}

/// Removes a key. Records that are sealed under it open nowhere any more; the current key is refused.
pub fn forget(path: &Path, id: &str) -> Result<(), VaultError> {
    let _lock = lock(path)?;
    let mut keys = read(path)?;
    if keys.current()?.id == id {
        return Err(VaultError::KeyFile(format!("key {id} is the current one; rotate first")));
    }
    let Some(from_ms) = keys.key(id).map(|key| key.from_ms) else {
        return Err(VaultError::KeyFile(format!("has no key {id}")));
    };
    let now = clock::now_ms();
    let ended = keys.0.iter().map(|key| key.from_ms).filter(|next| *next > from_ms).min();
    if ended.is_some_and(|ended| ended <= now && now - ended < SETTLING_MS) {
        let message = format!(
            "key {id} was the current one until a moment ago, and may still seal; try again in a minute"
        );
        return Err(VaultError::KeyFile(message));
    }
    keys.0.retain(|key| key.id != id);
    replace(path, &keys)
}

fn new_key(from_ms: u64) -> Result<LocalKey, VaultError> {
    Ok(LocalKey { id: random_hex::<ID_BYTES>(), from_ms, key: DataKey::random()? })
}

fn read_if_there(path: &Path) -> Result<Option<KeyRing>, VaultError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("read", path, &error)),
    };
    // With room for all of it, so that no copy of the keys stays in memory.
    let mut text = Zeroizing::new(String::with_capacity(4096));
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    read.map_err(|error| fault("read", path, &error))?;
    if text.len() as u64 > MAX_FILE {
        return Err(VaultError::KeyFile(format!("{} is larger than {MAX_FILE} bytes", path.display())));
    }
    KeyRing::parse(&text).map(Some)
}

/// Replaces the file, mode 0600: readers see either the old one or the new one.
fn replace(path: &Path, keys: &KeyRing) -> Result<(), VaultError> {
    let temporary = hidden_path(path, &format!("{}.{}", std::process::id(), random_hex::<4>()));
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(keys.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // A record must not outlive the key under which it was sealed.
        File::open(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
            .sync_all()
    };
    let written = write();
    if written.is_err() {
        // Err: it was never created, or renamed.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(|error| fault("write", path, &error))
}

/// Holds the exclusive lock of the file until it is dropped. The lock is another file, which is never replaced.
fn lock(path: &Path) -> Result<File, VaultError> {
    let lock = hidden_path(path, "lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
    let held = open.and_then(|file| file.lock().map(|()| file));
    held.map_err(|error| fault("lock", path, &error))
}

fn hidden_path(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{ending}"))
}

fn fault(action: &str, path: &Path, error: &io::Error) -> VaultError {
    VaultError::KeyFile(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_current_from_its_time_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        let first = rotate(&path, 1_000).unwrap();
        let second = rotate(&path, 2_000).unwrap();
        let keys = read(&path).unwrap();
        for (now, expected) in
            [(0, &first), (1_000, &first), (1_999, &first), (2_000, &second), (9_000, &second)]
        {
            assert_eq!(keys.current_at(now).unwrap().id, expected.id, "{now}");
        }
        let listed: Vec<_> = list(&path).unwrap().into_iter().map(|key| (key.id, key.is_current)).collect();
        assert_eq!(listed, [(first.id, false), (second.id, true)]);
    }

    #[test]
    fn a_new_key_follows_every_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        let later = rotate(&path, u64::from(u32::MAX)).unwrap();
        assert_eq!(rotate(&path, 5).unwrap().from_ms, later.from_ms + 1);
    }

    #[test]
    fn the_file_is_private_and_whole_and_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        assert!(matches!(read(&path), Err(VaultError::KeyFile(_))));
        let first = read_or_create(&path).unwrap();
        let again = read_or_create(&path).unwrap();
        assert_eq!(first.current().unwrap().id, again.current().unwrap().id);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, [".vault-key.lock", "vault-key"]);
    }

    #[test]
    fn concurrent_rotations_lose_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        let added: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| rotate(&path, 1).unwrap().id)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let keys = read(&path).unwrap();
        assert_eq!(keys.0.len(), 8);
        assert!(added.iter().all(|id| keys.key(id).is_some()));
    }

    #[test]
    fn only_a_former_key_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        let first = rotate(&path, 1).unwrap();
        assert!(forget(&path, &first.id).is_err(), "it is the current one");
        let second = rotate(&path, 2).unwrap();
        assert!(forget(&path, "none").is_err());
        forget(&path, &first.id).unwrap();
        let left: Vec<_> = list(&path).unwrap().into_iter().map(|key| key.id).collect();
        assert_eq!(left, [second.id.as_str()]);
        rotate(&path, clock::now_ms()).unwrap();
        let refused = forget(&path, &second.id).unwrap_err().to_string();
        assert!(refused.contains("may still seal"), "{refused}");
    }

    #[test]
    fn a_malformed_file_is_refused_without_repeating_it() {
        let key = STANDARD.encode([7; 32]);
        let short = STANDARD.encode([7; 31]);
        assert!(KeyRing::parse(&format!("{HEADER}\n\nk1 5 {key}\nk2 6 {key}\n")).is_ok());
        for (name, text) in [
            ("empty", String::new()),
            ("other version", format!("asp-vault-keys 2\nk1 5 {key}\n")),
            ("no key", format!("{HEADER}\n")),
            ("two words", format!("{HEADER}\nk1 {key}\n")),
            ("four words", format!("{HEADER}\nk1 5 {key} x\n")),
            ("negative time", format!("{HEADER}\nk1 -5 {key}\n")),
            ("short key", format!("{HEADER}\nk1 5 {short}\n")),
            ("not base64", format!("{HEADER}\nk1 5 ***\n")),
            ("odd id", format!("{HEADER}\nk:1 5 {key}\n")),
            ("long id", format!("{HEADER}\n{} 5 {key}\n", "k".repeat(MAX_ID + 1))),
            ("same id", format!("{HEADER}\nk1 5 {key}\nk1 6 {key}\n")),
            (
                "too many",
                format!(
                    "{HEADER}\n{}",
                    (0..=MAX_KEYS).map(|k| format!("k{k} 5 {key}\n")).collect::<String>()
                ),
            ),
        ] {
            let error = KeyRing::parse(&text).unwrap_err().to_string();
            assert!(!error.contains(&key) && !error.contains(&short), "{name}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault-key");
        fs::write(&path, vec![b'a'; usize::try_from(MAX_FILE).unwrap() + 1]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("larger"));
    }
}
