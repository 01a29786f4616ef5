//! Java: heap and metaspace follow the worker's memory; one collector thread and the first compiler alone,
//! because a worker is small and must start fast; a shared class archive where the shim has one.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};

const MAIN_CLASS: &str = "asp.plugin.Worker";
/// Made beside the jars by the shim's build; used when it is there.
const CLASS_ARCHIVE: &str = "worker.jsa";

pub(super) fn command(java: &Path, shim: &Path, package: &Path, memory: u64) -> Command {
    let mebibytes = memory / MEBIBYTE;
    let (heap, metaspace) = ((mebibytes / 2).max(16), (mebibytes / 5).max(48));
    let mut argv = vec![
        text(java),
        format!("-Xmx{heap}m"),
        "-Xms16m".to_owned(),
        "-Xss512k".to_owned(),
        format!("-XX:MaxMetaspaceSize={metaspace}m"),
        "-XX:ReservedCodeCacheSize=32m".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-XX:-UsePerfData".to_owned(),
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
        "-Xshare:auto".to_owned(),
    ];
    let archive = shim.join(CLASS_ARCHIVE);
    if archive.is_file() {
        argv.push(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    let shim_text = text(shim);
    let class_path = format!("{shim_text}/*:{shim_text}/lib/*:{0}:{0}/*", text(package));
    argv.extend(["-cp".to_owned(), class_path, MAIN_CLASS.to_owned()]);
    let mut read_only = prefixes(java);
    read_only.push(shim.to_path_buf());
    Command { argv, read_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_metaspace_follow_the_memory() {
        let dir = tempfile::tempdir().unwrap();
        let shim = dir.path();
        let make = || command(Path::new("/opt/jdk/bin/java"), shim, Path::new("/p/package"), 512 * MEBIBYTE);
        assert!(make().argv.contains(&"-Xmx256m".to_owned()) && !make().argv.iter().any(|a| a.contains("Archive")));
        std::fs::write(shim.join(CLASS_ARCHIVE), "").unwrap();
        assert!(make().argv.iter().any(|argument| argument.starts_with("-XX:SharedArchiveFile=")));
    }
}
