//! The binary as tests start it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Timeout that catches a hang, far above the duration of any step.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

/// Returns the binary with a state directory, free ports, and none of this process's environment.
pub(crate) fn asp(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asp"));
    command.env_clear().env("ASP_STATE_DIR", state);
    for name in ["ASP_PORT", "ASP_ADMIN_PORT", "ASP_GATEWAY_PORT", "ASP_XDS_PORT"] {
        command.env(name, "0");
    }
    command
}

/// Returns the samples of the repository.
pub(crate) fn primitives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives")
}

/// Returns output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
