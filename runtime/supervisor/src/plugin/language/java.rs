//! Java: heap and metaspace follow the worker's memory; one collector thread and only the first compiler, because a
//! worker is small and must start fast; a shared class archive if the shim has one.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};
use crate::cause::FullHeap;

const MAIN_CLASS: &str = "asp.plugin.Worker";
/// Main jar, which refers to its libraries by relative paths; the plugin's own classes have a separate loader.
const JAR: &str = "asp-plugin.jar";
/// Exit code of `-XX:+ExitOnOutOfMemoryError`; a plugin's own `System.exit` is 70.
const OOM_EXIT: i32 = 3;
/// Class archive, created by the shim's installation for this class path and these flags; used if it exists.
const CLASS_ARCHIVE: &str = "worker.jsa";

pub(super) fn command(java: &Path, shim: &Path, memory: u64) -> Command {
    let mebibytes = memory / MEBIBYTE;
    let heap = (mebibytes / 2).max(16);
    let metaspace = (mebibytes / 4).clamp(64, 256);
    let mut argv = vec![
        text(java),
        format!("-Xmx{heap}m"),
        format!("-XX:MaxMetaspaceSize={metaspace}m"),
        "-XX:ReservedCodeCacheSize=32m".to_owned(),
        "-Xss512k".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        // A start runs much code a few times: compiling less of it saves an eighth of the CPU time.
        "-XX:CompileThresholdScaling=4".to_owned(),
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
        "-XX:-UsePerfData".to_owned(),
        // No agent is ever loaded into a running worker.
        "-XX:+DisableAttachMechanism".to_owned(),
        // Java ignores TMPDIR and HOME; the current directory is the writable one.
        "-Djava.io.tmpdir=.".to_owned(),
        "-Duser.home=.".to_owned(),
        "-Xshare:auto".to_owned(),
    ];
    let archive = shim.join(CLASS_ARCHIVE);
    if archive.is_file() {
        argv.push(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    argv.extend(["-cp".to_owned(), text(&shim.join(JAR)), MAIN_CLASS.to_owned()]);
    let mut read_only = prefixes(java);
    read_only.push(shim.to_path_buf());
    Command { secrets: Vec::new(), argv, read_only, full_heap: FullHeap::Exit(OOM_EXIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_metaspace_follow_the_memory_and_the_archive_is_used_when_there() {
        let dir = tempfile::tempdir().unwrap();
        let make = || command(Path::new("/opt/jdk/bin/java"), dir.path(), 512 * MEBIBYTE).argv;
        for flag in ["-Xmx256m", "-XX:MaxMetaspaceSize=128m"] {
            assert!(make().contains(&flag.to_owned()), "{:?}", make());
        }
        assert!(!make().iter().any(|argument| argument.contains("Archive")));
        std::fs::write(dir.path().join(CLASS_ARCHIVE), "").unwrap();
        assert!(make().iter().any(|argument| argument.starts_with("-XX:SharedArchiveFile=")));
    }
}
