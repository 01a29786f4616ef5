//! The supervisor's interface to a worker's sandbox: the description, the command that starts `worker-init` with it,
//! the control groups that bound it, and the probe of the machine's support.
//!
//! The binary `worker-init` (`main.rs`) builds the sandbox itself. A sandbox is never weaker than its description: if a
//! part cannot be built, the worker ends with [`EXIT_SETUP`] before its first instruction.

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
pub use report::{Report, Reporter, SetupFault};
pub use sandbox::{Bounds, Egress, Level, Limits, MAX_TCP, Sandbox, SandboxError, TcpEgress, own_group};

/// Exit code of `worker-init` if the sandbox could not be built; one JSON line on standard error
/// (`{"workerInit":"failed","step":"mounts","error":"...","host":true}`) names the step that failed, and whether the
/// machine caused it. A worker may exit and print like that too; only the [`Report`] is reliable.
pub const EXIT_SETUP: i32 = 71;

/// Maximum size of a description, in bytes of JSON.
pub const MAX_DESCRIPTION_BYTES: usize = 64 * 1024;
