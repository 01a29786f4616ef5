//! A machine on which workers have no control group: whether the runtime may go on.
//!
//! Keeps true: bounds that are looked at are taken only where the operator said so, and only where what is to be looked
//! at can be seen. A refusal names the cause and the ways out.

use std::io;
use std::path::Path;

use asp_launcher::{Bounds, Level};

use crate::settings::Settings;

/// Of statfs(2): file systems whose files are memory.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// What a file system in memory may have in all: a mount that is no larger is itself the bound.
const LITTLE: u64 = 64 << 20;

/// Whether what lies in `directory` is kept in memory, and much of it may be.
fn is_memory(directory: &Path) -> io::Result<bool> {
    let found = rustix::fs::statfs(directory)?;
    let size = rustix::fs::statvfs(directory)?;
    let bytes = size.f_blocks.saturating_mul(size.f_frsize);
    // Some architectures tell the kind with a sign; of no size, there is no bound.
    let kind = found.f_type as u64 & 0xffff_ffff;
    Ok(IN_MEMORY.contains(&kind) && (bytes == 0 || bytes > LITTLE))
}

/// Whether the runtime may go on with workers of `level`, and a word about it; `reason`: why there are no groups.
pub(super) fn go_on(
    settings: &Settings,
    level: Level,
    reason: &str,
    sees_workers: bool,
) -> anyhow::Result<()> {
    if settings.bounds == Bounds::Cgroup {
        anyhow::bail!(
            "workers have no control group to hold them to their limits ({reason}). Ways out: start the runtime in a \
             group of its own (systemd-run --user --scope -p Delegate=yes asp-runtime ..); run it as root; or take \
             bounds that are looked at ten times a second (--bounds sampled or ASP_RUNTIME_BOUNDS=sampled), which \
             are no defence against a hostile plugin"
        );
    }
    if !sees_workers {
        anyhow::bail!(
            "sampled bounds need the processes of workers in /proc, and this account does not see them there. Ways out: \
             mount /proc without hidepid (mount -o remount,hidepid=0 /proc); or a control group, which is missing too \
             ({reason})"
        );
    }
    files_are_counted(settings, level)?;
    tracing::warn!(
        runtime = true,
        bounds = "sampled",
        reason,
        "workers have no control group: each process is held to its limits, and what a worker uses in all is looked at \
         ten times a second"
    );
    Ok(())
}

/// Without a control group, whether the memory that workers fill with files is somebody's: at level 3 each has a file
/// system of its own, which is looked at. What lies unnamed in a shared one is told nobody's, so it must be no memory.
fn files_are_counted(settings: &Settings, level: Level) -> anyhow::Result<()> {
    let runs = settings.min_level <= level;
    if level == Level::L3 || !runs || !is_memory(&settings.state)? {
        return Ok(());
    }
    anyhow::bail!(
        "{} is in memory (tmpfs, above 64 MiB), and at level {} with sampled bounds nothing counts what workers write there. Ways out: a \
         state directory on a disk (--state; for asp serve ASP_STATE_DIR, whose path is short enough for sockets; for \
         asp plugin TMPDIR=/var/tmp); a control group; or level 3, which is missing here",
        settings.state.display(),
        level.number()
    )
}
