//! What every test needs: directories, control groups, a description, and the run of a sandbox.

use std::path::Path;

use tempfile::TempDir;

pub(crate) fn worker_init() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_worker-init"))
}

/// A directory other users may pass through, as the supervisor's is.
pub(crate) fn scratch() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix("launcher-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
