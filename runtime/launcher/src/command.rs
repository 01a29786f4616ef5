//! The command that starts `worker-init` with a description.
//!
//! The description is passed in memory on an inherited file descriptor, because other processes can read a process's
//! arguments and environment. The caller sets standard input, output and error.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command};
use std::{fs::File, io};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use crate::MAX_DESCRIPTION_BYTES;
use crate::cgroup::{Cgroup, GroupFiles};
use crate::report::Report;
use crate::sandbox::{Bounds, Sandbox, SandboxError};

/// Input of `worker-init`: the sandbox, and facts that only the supervisor knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Description {
    pub sandbox: Sandbox,
    /// Control group; absent if the bounds are sampled.
    pub group: Option<GroupFiles>,
    /// Process id of the supervisor; when it ends, everything here ends too.
    pub supervisor: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("limits by a control group require a control group")]
    NoCgroup,
    #[error("the description has {0} bytes, at most {MAX_DESCRIPTION_BYTES} are allowed")]
    TooLong(usize),
    #[error("read the description: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("pass the description: {0}")]
    Io(#[from] io::Error),
}

/// Command that starts a worker, and the report about the start.
#[derive(Debug)]
pub struct Launch {
    pub command: Command,
    /// Report of `worker-init` about the start.
    pub report: Report,
}

/// Does the same as [`launch`], for a caller that only needs the exit code.
pub fn command(
    worker_init: &Path,
    sandbox: &Sandbox,
    cgroup: Option<&Cgroup>,
) -> Result<Command, CommandError> {
    Ok(launch(worker_init, sandbox, cgroup)?.command)
}

/// Returns the command that becomes the worker: its arguments and (empty) environment are set; the caller sets its
/// standard streams. It ends as the worker ends: with the same exit code, or by the same signal.
///
/// Every process it creates dies when the calling process does.
pub fn launch(
    worker_init: &Path,
    sandbox: &Sandbox,
    cgroup: Option<&Cgroup>,
) -> Result<Launch, CommandError> {
    let description =
        Description { sandbox: sandbox.clone(), group: cgroup.map(Cgroup::files), supervisor: process::id() };
    description.check()?;
    let text = serde_json::to_vec(&description)?;
    if text.len() > MAX_DESCRIPTION_BYTES {
        return Err(CommandError::TooLong(text.len()));
    }
    let memory = memfd_create("sandbox", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut file = File::from(memory);
    file.write_all(&text)?;

    let (report, reporter) = Report::open()?;
    let mut command = Command::new(worker_init);
    command.arg(format!("--description={}", file.as_raw_fd())).env_clear();
    command.arg(format!("--report={}", reporter.as_fd().as_raw_fd()));
    let inherit = move || {
        fcntl_setfd(file.as_fd(), FdFlags::empty())?;
        fcntl_setfd(reporter.as_fd(), FdFlags::empty()).map_err(io::Error::from)
    };
    // SAFETY: the closure makes two system calls and allocates nothing, as required between fork and exec in a process
    // with threads.
    #[allow(unsafe_code, reason = "the only way to pass descriptors to one child")]
    unsafe {
        command.pre_exec(inherit);
    }
    Ok(Launch { command, report })
}

impl Description {
    /// Reads and checks the output of [`command`].
    pub fn parse(text: &[u8]) -> Result<Description, CommandError> {
        if text.len() > MAX_DESCRIPTION_BYTES {
            return Err(CommandError::TooLong(text.len()));
        }
        let description: Description = serde_json::from_slice(text)?;
        description.check()?;
        Ok(description)
    }

    fn check(&self) -> Result<(), CommandError> {
        self.sandbox.check()?;
        if self.sandbox.bounds == Bounds::Cgroup && self.group.is_none() {
            return Err(CommandError::NoCgroup);
        }
        Ok(())
    }
}
