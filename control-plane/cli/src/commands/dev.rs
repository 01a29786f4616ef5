//! `asp dev`: serves a directory of primitives on this machine and applies every change to specs and code; also used by `asp
//! mcp --embedded`.
//!
//! Owns the preparation: the directory, the settings, and the state directory, which is removed afterwards unless it was
//! named. Refuses a directory without a server.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::print;
use asp_packaging::trust;
use asp_platform::telemetry;
use tempfile::TempDir;

use super::specs::{is_server, refuse_server};
use crate::args::dev::DevArgs;
use crate::serve::{self, DevSession, Readers};
use crate::settings::{self, dev::Flags};

/// Default log levels: a person reads along, so successes need no line.
const LOG: &str = "warn";

/// Runs until SIGINT, SIGTERM or SIGHUP.
pub fn run(args: &DevArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    telemetry::start(Some(&environment.get(telemetry::ENV_LOG).unwrap_or_else(|| LOG.to_owned())));
    let directory = directory(&args.directory)?;
    trust::ask(&directory)?;
    let state = State::open(settings::dev::state_dir(&environment))?;
    let flags = Flags { port: args.port, allow_private: args.allow_private };
    let settings = settings::dev::read(flags, state.path(), &environment).map_err(Failure::Configuration)?;
    let readers = if args.json { Readers::Programs } else { Readers::Person };
    serve::run_with(settings, Some(DevSession::new(directory, readers)))
}

/// Runs `asp mcp --embedded`: the same for one client on standard input and output, until that closes it. Its state is
/// removed afterwards, so that two clients may serve the same directory.
pub(super) fn embedded(directory: &Path, server: Option<String>) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    telemetry::start(Some(&environment.get(telemetry::ENV_LOG).unwrap_or_else(|| LOG.to_owned())));
    let directory = self::directory(directory)?;
    let state = State::open(None)?;
    let flags = Flags { port: Some(0), ..Flags::default() };
    let settings = settings::dev::read(flags, state.path(), &environment).map_err(Failure::Configuration)?;
    serve::run_with(settings, Some(DevSession::new(directory, Readers::Client { server })))
}

/// Returns the directory, which must have at least one server to begin with.
fn directory(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let refused = |what: String| {
        print::error(&what);
        Failure::Refused
    };
    let directory = path.canonicalize().map_err(|error| {
        let make =
            format!("`asp plugin new hello --language python {shown}` makes it, with a server that works");
        refused(format!("{shown} cannot be read: {error}; {make}"))
    })?;
    refuse_server(&directory)?;
    let folders = std::fs::read_dir(&directory).with_context(|| format!("read {shown}"))?;
    if !folders.flatten().any(|entry| is_server(&entry.path())) {
        return Err(refused(format!(
            "{shown} contains no server: no folder has a server.yaml; `asp plugin new hello --language python \
             {shown}` creates a working one"
        )));
    }
    Ok(directory)
}

/// State directory: `dev` in the named one, or a temporary one.
enum State {
    Named(PathBuf),
    Temporary(TempDir),
}

impl State {
    fn open(named: Option<PathBuf>) -> anyhow::Result<State> {
        match named {
            Some(path) => Ok(State::Named(path)),
            None => {
                let private = std::fs::Permissions::from_mode(0o700);
                let made = tempfile::Builder::new().prefix("asp-dev").permissions(private).tempdir();
                Ok(State::Temporary(
                    made.context("create a temporary state directory (ASP_STATE_DIR overrides it)")?,
                ))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            State::Named(path) => path,
            State::Temporary(directory) => directory.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_server_is_refused() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(directory(&root.path().join("absent")), Err(Failure::Refused)));
        assert!(matches!(directory(root.path()), Err(Failure::Refused)));
        let server = root.path().join("hello");
        std::fs::create_dir(&server).unwrap();
        std::fs::write(server.join("server.yaml"), "").unwrap();
        assert_eq!(directory(root.path()).unwrap(), root.path().canonicalize().unwrap());
        assert!(matches!(directory(&server), Err(Failure::Refused)), "the folder of a server is none");
    }
}
