//! What a worker's sandbox is made of, and what the supervisor needs to use one: the description, the command
//! that starts `worker-init` with it, the control groups that bound it, and the probe of what a machine gives.
//!
//! The sandbox itself is built by the binary `worker-init` (`main.rs`). A sandbox is never weaker than its
//! description: what cannot be built ends the worker with [`EXIT_SETUP`] before its first instruction.

mod activity;
mod cgroup;
mod command;
mod origin;
mod probe;
mod report;
mod sandbox;

pub use activity::{Lookout, ProcessTime, Processes, Tree, mapped_bytes};
pub use cgroup::{Activity, Cgroup, CgroupError, Cgroups, FrozenGroup, GroupFiles, Stats};
pub use command::{CommandError, Description, Launch, command, launch};
pub use origin::is_from_sandbox;
pub use probe::{Probe, probe};
pub use report::{Fault, Report, Reporter};
pub use sandbox::{Bounds, Egress, Level, Limits, Sandbox, SandboxError, own_group};

/// Exit code of `worker-init` when the sandbox could not be built; one JSON line on standard error
/// (`{"workerInit":"failed","step":"mounts","error":"...","host":true}`) names the step that failed, and whether it
/// was the machine's fault. A worker may end and print like that too: what is sure is the [`Report`].
pub const EXIT_SETUP: i32 = 71;

/// Largest description `worker-init` reads, bytes of JSON.
pub const MAX_DESCRIPTION_BYTES: usize = 64 * 1024;
