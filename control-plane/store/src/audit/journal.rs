//! Files of events that the log does not have yet, for the case that their process is killed: an event is handed to the
//! kernel before anybody acts on it.
//!
//! Owns the files of one run of a gateway, each locked while the run lasts. Refuses: `fsync`, so that an event costs one
//! system call; a machine that crashes may lose the events that were in no log. Keeps true: an event that was added and not
//! forgotten is in a file, also after this process was killed; the files of all runs together stay below [`MAX_BYTES`].

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::CallEvent;
use crate::private;

/// Maximum bytes of all files.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of a file after which the next one is begun, so that old ones can be removed.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Maximum number of files of former runs that are looked at together.
const MAX_FILES: usize = 1_000;
/// Ending of a file's name.
const ENDING: &str = ".events";
/// Ending of the name of a file that is not yet locked.
const UNLOCKED: &str = ".new";
/// Age after which nobody will lock such a file any more.
const ABANDONED: Duration = Duration::from_secs(60);

/// The journal of one run of a gateway.
pub struct Journal {
    directory: PathBuf,
    id: String,
    state: Mutex<State>,
    /// Bytes of the files of former runs.
    former_bytes: AtomicU64,
}

/// The place of an event in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlace(u64);

#[derive(Default)]
struct State {
    /// Files in the order of their numbers; events are added to the last one.
    segments: VecDeque<Segment>,
    /// Number of the next segment.
    next: u64,
    bytes: u64,
    is_failing: bool,
}

/// A file, locked by its descriptor.
struct Segment {
    number: u64,
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Number of its events that the log does not have.
    pending: usize,
}

impl Segment {
    fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            // Its events are in the log, and are found there when the file is read.
            tracing::debug!(%error, file = %self.path.display(), "a file of the audit's journal could not be removed");
        }
    }
}

impl Journal {
    /// Returns the journal of a run with this id, whose files are created when there is something to write.
    pub fn new(directory: &Path, id: &str) -> Journal {
        Journal {
            directory: directory.to_owned(),
            id: id.to_owned(),
            state: Mutex::default(),
            former_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets the bytes of the files of former runs, which count too.
    pub(super) fn set_former_bytes(&self, bytes: u64) {
        self.former_bytes.store(bytes, Ordering::Release);
    }

    /// Adds an event, with one system call. Returns `None` if the disk or the bound does not allow it, which is logged
    /// once: the event then is in memory only until the log has it.
    pub fn add(&self, event: &CallEvent) -> Option<JournalPlace> {
        let line = encode(event);
        let mut state = self.state.lock();
        match self.write(&mut state, &line) {
            Ok(place) => {
                if mem::take(&mut state.is_failing) {
                    tracing::warn!("the journal of the audit accepts events again");
                }
                Some(place)
            }
            Err(error) => {
                if !mem::replace(&mut state.is_failing, true) {
                    tracing::error!(%error, directory = %self.directory.display(), "the journal of the audit does not accept events: if this process is killed, events that are not in the audit log yet are lost");
                }
                None
            }
        }
    }

    fn write(&self, state: &mut State, line: &[u8]) -> io::Result<JournalPlace> {
        let bytes = line.len() as u64;
        if state.bytes + self.former_bytes.load(Ordering::Acquire) + bytes > MAX_BYTES {
            return Err(io::Error::other(format!("its files have {MAX_BYTES} bytes")));
        }
        if state.segments.back().is_none_or(|last| last.bytes >= SEGMENT_BYTES) {
            let segment = self.begin(state.next)?;
            state.next += 1;
            state.segments.push_back(segment);
        }
        let Some(segment) = state.segments.back_mut() else { return Err(io::Error::other("no file")) };
        // Counted before it is known how much of it was written.
        state.bytes += bytes;
        segment.bytes += bytes;
        segment.file.write_all(line)?;
        segment.pending += 1;
        Ok(JournalPlace(segment.number))
    }

    /// Creates a file. It has its name only once it is locked: otherwise it would be taken for one of a former run.
    fn begin(&self, number: u64) -> io::Result<Segment> {
        private::directory(&self.directory)?;
        let path = self.directory.join(format!("{}.{number}{ENDING}", self.id));
        let unlocked = self.directory.join(format!("{}.{number}{UNLOCKED}", self.id));
        let file = OpenOptions::new().create_new(true).append(true).mode(private::FILE).open(&unlocked)?;
        let locked = match file.try_lock() {
            Ok(()) => fs::rename(&unlocked, &path),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::Error::other("another process has locked a new file")),
        };
        if let Err(error) = locked {
            let _ = fs::remove_file(&unlocked);
            return Err(error);
        }
        Ok(Segment { number, path, file, bytes: 0, pending: 0 })
    }

    /// Forgets events that the log has.
    pub fn forget(&self, places: &[JournalPlace]) {
        if places.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for place in places {
            if let Some(segment) = state.segments.iter_mut().find(|segment| segment.number == place.0) {
                segment.pending = segment.pending.saturating_sub(1);
            }
        }
        let last = state.next.saturating_sub(1);
        let mut freed = 0;
        state.segments.retain(|segment| {
            let is_done = segment.pending == 0 && segment.number != last;
            if is_done {
                freed += segment.bytes;
                segment.remove();
            }
            !is_done
        });
        if let Some(segment) = state.segments.back_mut()
            && segment.pending == 0
            && segment.bytes > 0
            // Otherwise a quiet gateway's file would reach back for days.
            && segment.file.set_len(0).is_ok()
        {
            freed += mem::take(&mut segment.bytes);
        }
        state.bytes = state.bytes.saturating_sub(freed);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        for segment in &self.state.get_mut().segments {
            if segment.pending == 0 {
                segment.remove();
            }
        }
    }
}

/// Returns an event as it is written: in a line of its own even if the one before was written in part.
fn encode(event: &CallEvent) -> Vec<u8> {
    let fields = (event.at_ms, &event.org, &event.event);
    let mut line = vec![b'\n'];
    // A number and two texts always serialize to JSON.
    line.extend(serde_json::to_vec(&fields).unwrap_or_default());
    line.push(b'\n');
    line
}

/// Returns the events of a file and the number of lines that are none, as the last one may be.
fn decode(content: &[u8]) -> (Vec<CallEvent>, usize) {
    let mut events = Vec::new();
    let mut broken = 0;
    for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<(i64, String, String)>(line) {
            Ok((at_ms, org, event)) => events.push(CallEvent { at_ms, org, event }),
            Err(_) => broken += 1,
        }
    }
    (events, broken)
}

/// Files of runs that have ended.
#[derive(Debug, Default)]
pub(super) struct FormerFiles {
    pub(super) paths: Vec<PathBuf>,
    pub(super) bytes: u64,
}

/// Returns the files whose process has ended. Reads the directory; for a thread that may wait.
pub(super) fn former_files(directory: &Path) -> io::Result<FormerFiles> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FormerFiles::default()),
        Err(error) => return Err(error),
    };
    let mut former = FormerFiles::default();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(UNLOCKED) {
            remove_abandoned(&path);
        }
        if former.paths.len() < MAX_FILES
            && run_of(&path).is_some()
            // One that cannot be opened must not keep the others from the log.
            && let Ok(Some(file)) = open_former(&path)
        {
            former.bytes += file.metadata()?.len();
            former.paths.push(path);
        }
    }
    former.paths.sort();
    Ok(former)
}

fn remove_abandoned(path: &Path) {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    if changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED)) {
        let _ = fs::remove_file(path);
    }
}

/// Returns the id of the run that a file is of; `None` if it is no file of a journal.
fn run_of(path: &Path) -> Option<&str> {
    let (id, number) = path.file_name()?.to_str()?.strip_suffix(ENDING)?.rsplit_once('.')?;
    let is_id = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    (is_id(id) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(id)
}

/// Opens and locks a file; `None` if its process has not ended, or another one has read and removed it.
fn open_former(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        // Whoever had the lock before may have removed it.
        Ok(()) => Ok(path.exists().then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The content of a file of a run that has ended, locked until it is dropped.
pub(super) struct FormerFile {
    /// Id of the run.
    pub(super) id: String,
    pub(super) events: Vec<CallEvent>,
    /// Number of lines that are no event.
    pub(super) broken: usize,
    path: PathBuf,
    _lock: File,
}

impl FormerFile {
    /// Reads a file; `None` if there is nothing to do. For a thread that may wait.
    pub(super) fn read(path: &Path) -> io::Result<Option<FormerFile>> {
        let Some(id) = run_of(path) else { return Ok(None) };
        let Some(mut file) = open_former(path)? else { return Ok(None) };
        let mut content = Vec::new();
        Read::by_ref(&mut file).take(MAX_BYTES).read_to_end(&mut content)?;
        let (events, broken) = decode(&content);
        Ok(Some(FormerFile { id: id.to_owned(), events, broken, path: path.to_owned(), _lock: file }))
    }

    /// Removes the file.
    pub(super) fn remove(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn event(at_ms: i64) -> CallEvent {
        CallEvent { at_ms, org: "acme".into(), event: format!("{{\"event\":\"call.start\",\"n\":{at_ms}}}") }
    }

    fn journal(directory: &TempDir) -> Journal {
        Journal::new(directory.path(), "0198a000-run")
    }

    /// Ends a run as a kill does: its descriptors are closed, and nothing is removed.
    fn killed(journal: Journal) {
        let mut journal = mem::ManuallyDrop::new(journal);
        journal.state.get_mut().segments.clear();
    }

    fn left(directory: &TempDir) -> Vec<CallEvent> {
        let former = former_files(directory.path()).unwrap();
        former.paths.iter().flat_map(|path| FormerFile::read(path).unwrap().unwrap().events).collect()
    }

    #[test]
    fn what_a_killed_run_added_and_did_not_forget_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let journal = journal(&directory);
        let first = journal.add(&event(1)).unwrap();
        journal.forget(&[first]);
        journal.add(&event(2)).unwrap();
        journal.add(&event(3)).unwrap();
        assert!(former_files(directory.path()).unwrap().paths.is_empty(), "its run has not ended");
        killed(journal);
        assert_eq!(left(&directory), [event(2), event(3)]);
        let path = former_files(directory.path()).unwrap().paths.remove(0);
        let one = FormerFile::read(&path).unwrap().unwrap();
        assert!(FormerFile::read(&path).unwrap().is_none(), "one process at a time");
        assert_eq!((one.id.as_str(), one.broken), ("0198a000-run", 0));
        one.remove().unwrap();
        assert!(left(&directory).is_empty());
    }

    #[test]
    fn a_run_that_ends_leaves_no_file_unless_it_has_events() {
        let directory = tempfile::tempdir().unwrap();
        let done = journal(&directory);
        let place = done.add(&event(1)).unwrap();
        done.forget(&[place]);
        drop(done);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let open = journal(&directory);
        open.add(&event(2)).unwrap();
        drop(open);
        assert_eq!(left(&directory), [event(2)]);
    }

    #[test]
    fn files_whose_events_are_in_the_log_are_removed_and_the_others_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let journal = journal(&directory);
        let large = CallEvent { event: "x".repeat(300 * 1024), ..event(1) };
        let places: Vec<JournalPlace> = std::iter::from_fn(|| journal.add(&large)).collect();
        assert!((200..220).contains(&places.len()), "{}", places.len());
        assert!(journal.add(&event(2)).is_some(), "a small one fits");
        journal.forget(&places);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(journal.add(&large).is_some(), "there is room again");
        journal.set_former_bytes(MAX_BYTES);
        assert!(journal.add(&event(3)).is_none(), "files of former runs count");
    }

    #[test]
    fn lines_that_are_no_events_are_skipped() {
        let mut content = encode(&event(1));
        for bad in
            ["", "{", "[]", "[1]", "[\"1\",\"a\",\"b\"]", "[1,\"a\",7]", "[1,\"acme\",\"{\\\"ev", "null"]
        {
            content.push(b'\n');
            content.extend(bad.as_bytes());
        }
        content.push(0xff);
        content.extend(encode(&event(2)));
        let (events, broken) = decode(&content);
        assert_eq!((events, broken), (vec![event(1), event(2)], 7));
        let within = CallEvent { event: "{\"a\":\"\n\"}".into(), ..event(3) };
        assert_eq!(decode(&encode(&within)), (vec![within], 0));
    }

    #[test]
    fn other_files_of_the_directory_are_left_alone() {
        for name in [
            "x",
            "a.events",
            ".1.events",
            "a.b.events",
            "a..events",
            "a_b.1.events",
            "a.1.new",
            "a.1.events~",
        ] {
            assert_eq!(run_of(Path::new(name)), None, "{name}");
        }
        assert_eq!(run_of(Path::new("/state/0198-a.12.events")), Some("0198-a"));
    }
}
