//! Decides whether the runtime may run on a machine on which workers have no control group.
//!
//! Keeps true: sampled limits are used only if the operator chose them, and only if everything that must be sampled is
//! visible. A refusal names the cause and the remedies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use asp_launcher::{Bounds, Level};
use rustix::fs::{Access, StatVfsMountFlags, access, stat, statfs, statvfs};

use crate::settings::Settings;

/// Types of file systems in memory, as in statfs(2).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Maximum total size in bytes of a file system in memory that is tolerated: a mount that is no larger is itself the
/// limit.
const LITTLE: u64 = 64 << 20;

/// Whether the files in `directory` are kept in memory and may be large.
fn is_memory(directory: &Path) -> io::Result<bool> {
    let found = statfs(directory)?;
    let size = statvfs(directory)?;
    let bytes = size.f_blocks.saturating_mul(size.f_frsize);
    // Some architectures use a signed type; a size of 0 means no limit.
    let kind = found.f_type as u64 & 0xffff_ffff;
    Ok(IN_MEMORY.contains(&kind) && (bytes == 0 || bytes > LITTLE))
}

/// Checks whether the runtime may run with workers of `level`, and logs it; `reason`: why there are no groups.
pub(super) fn check_level(
    settings: &Settings,
    level: Level,
    reason: &str,
    sees_workers: bool,
) -> anyhow::Result<()> {
    if settings.bounds == Bounds::Cgroup {
        anyhow::bail!(
            "workers have no control group to hold them to their limits ({reason}). Remedies: start the runtime in a \
             group of its own (systemd-run --user --scope -p Delegate=yes asp-runtime ..); run it as root; or use \
             limits that are sampled ten times a second (--bounds sampled or ASP_RUNTIME_BOUNDS=sampled), which do \
             not stop a hostile plugin"
        );
    }
    if !sees_workers {
        anyhow::bail!(
            "sampled bounds need the processes of workers in /proc, and this account does not see them there. Remedies: \
             mount /proc without hidepid (mount -o remount,hidepid=0 /proc); or a control group, which is missing too \
             ({reason})"
        );
    }
    check_file_accounting(settings, level)?;
    // As the operator chose.
    tracing::info!(
        runtime = true,
        bounds = "sampled",
        reason,
        "workers have no control group; each process is limited individually, and the total use of a worker is sampled \
         ten times a second"
    );
    Ok(())
}

/// Checks that the memory that workers fill with files is attributed to them without a control group. At level 3 each
/// has a file system of its own, which is sampled. Files in a shared one cannot be attributed, so it must not be in
/// memory: the state directory, and at level 1, where workers are not confined, every directory that they may write to.
fn check_file_accounting(settings: &Settings, level: Level) -> anyhow::Result<()> {
    let runs = settings.min_level <= level;
    if level == Level::L3 || !runs {
        return Ok(());
    }
    if level == Level::L1
        && let Some(place) = memory_of_all()?
    {
        anyhow::bail!(
            "{place} is in memory (tmpfs, above 64 MiB) and workers may write there, and at level 1 with sampled bounds \
             nothing counts that. Remedies: make it smaller (mount -o remount,size=64M {place}) or read-only; a control \
             group; or level 2 or 3, which are missing here",
            place = place.display()
        );
    }
    if !is_memory(&settings.state)? {
        return Ok(());
    }
    anyhow::bail!(
        "{} is in memory (tmpfs, above 64 MiB), and at level {} with sampled bounds nothing counts what workers write there. Remedies: a \
         state directory on a disk (--state; for asp serve ASP_STATE_DIR, whose path is short enough for sockets; for \
         asp plugin TMPDIR=/var/tmp); a control group; or level 3, which is missing here",
        settings.state.display(),
        level.number()
    )
}

/// Returns a large file system in memory in which unconfined workers may create files; `None`: there is none. One that
/// cannot be inspected does not count. A writable directory inside an unwritable one is missed.
fn memory_of_all() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut places = mounts.lines().filter_map(memory_mount);
    Ok(places.find(|place| may_write(place) && is_memory(place).unwrap_or(false)))
}

/// Returns the mount point if a line of /proc/self/mounts (fstab(5)) mounts memory.
fn memory_mount(mount: &str) -> Option<PathBuf> {
    let mut fields = mount.split(' ').skip(1);
    let place = fields.next()?;
    let place = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(place.to_owned(), |place, (escaped, plain)| place.replace(escaped, plain));
    matches!(fields.next()?, "tmpfs" | "ramfs").then(|| place.into())
}

/// Whether a worker may create files in `directory`: it runs as this process's user, or, if that is root, as one of its
/// own.
fn may_write(directory: &Path) -> bool {
    let read_only =
        |directory| statvfs(directory).map(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
    if rustix::process::geteuid().is_root() {
        let by_all = stat(directory).is_ok_and(|found| found.st_mode & 0o002 != 0);
        return by_all && read_only(directory) == Ok(false);
    }
    access(directory, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_among_mounts_wherever_it_lies() {
        let place = |line| memory_mount(line).map(|place| place.display().to_string());
        assert_eq!(place("tmpfs /dev/shm tmpfs rw,nosuid 0 0").as_deref(), Some("/dev/shm"));
        assert_eq!(place(r"none /a\040b\134 ramfs rw 0 0").as_deref(), Some(r"/a b\"));
        assert_eq!(place("/dev/vda / ext4 rw 0 0"), None);
        assert_eq!(place(""), None);
    }
}
