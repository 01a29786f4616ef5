//! The last steps before the worker's first instruction: bounds, Landlock, exec.

use std::ffi::CString;
use std::process::ExitCode;

use asp_launcher::{Level, Sandbox};
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::stat::{Mode, umask};

use crate::failure::{SetupFailure, StepContext};
use crate::namespaces::ProcessScope;
use crate::{file_access, limits};

/// Becomes the worker's program; returns only if that fails.
pub(crate) fn exec_worker(sandbox: &Sandbox, counted: ProcessScope) -> Result<ExitCode, SetupFailure> {
    umask(Mode::from_bits_truncate(0o077));
    nix::unistd::chdir(&sandbox.work_dir).map_err(|error| entry_failure(sandbox, error))?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).during("signals")?;
    // Ignored signals stay ignored after exec: SIGPIPE because of Rust's runtime, others because of the process that
    // started the supervisor.
    Signal::iterator().for_each(default_action);
    limits::apply(sandbox, counted)?;
    if sandbox.level >= Level::L2 {
        file_access::restrict(sandbox)?;
    }
    exec(sandbox)
}

/// Describes why the work directory cannot be entered. At level 3 every directory above it is accessible.
fn entry_failure(sandbox: &Sandbox, error: Errno) -> SetupFailure {
    let dir = sandbox.work_dir.display();
    let user = sandbox.uid;
    let text = match error {
        Errno::EACCES => format!(
            "{dir}: {error}: below level 3 the worker's user {user} must be allowed to pass through every directory \
             above it (chmod o+x), or the state directory to lie elsewhere"
        ),
        _ => format!("{dir}: {error}"),
    };
    SetupFailure::new("work directory", text)
}

/// Restores a signal's default action.
pub(crate) fn default_action(signal: Signal) {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this program.
    #[allow(unsafe_code, reason = "sigaction can install handlers and so has no safe form")]
    // Fails only for SIGKILL and SIGSTOP, which have no other action.
    let _ = unsafe { sigaction(signal, &action) };
}

fn exec(sandbox: &Sandbox) -> Result<ExitCode, SetupFailure> {
    let text = |text: &str| CString::new(text).during("exec");
    let argv = sandbox.argv.iter().map(|argument| text(argument)).collect::<Result<Vec<_>, _>>()?;
    let variable = |(name, value): (&String, &String)| text(&format!("{name}={value}"));
    let env = sandbox.env.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    let program = argv.first().ok_or_else(|| SetupFailure::new("exec", "no program"))?;
    // Every descriptor opened here closes on exec.
    match nix::unistd::execve(program, &argv, &env) {
        Ok(never) => match never {},
        Err(error) => {
            let text = format!("{}: {error}", program.to_string_lossy());
            // Errors of the machine: no memory, no files, no processes. All others concern the program.
            let scarce = [Errno::ENOMEM, Errno::EAGAIN, Errno::EMFILE, Errno::ENFILE, Errno::EIO];
            Err(match scarce.contains(&error) {
                true => SetupFailure::new("exec", text),
                false => SetupFailure::of_description("exec", text),
            })
        }
    }
}
